"""The wrong rules of the simulator, by area: each function gives the patches of one.

A search that does not kill a mutant proves nothing. Nothing in the simulator or in its fault plans knows which is on.
The tables of tests/rules say which rule each of them breaks.
"""
