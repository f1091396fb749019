"""One world under all tests without processes: cores and shells run on it, driven by hand, by histories, or by a seed.

disk.py         a disk in memory that loses, tears, fails and rots
controller.py   a controller that decides at once
loop.py         an event loop on virtual time, and the processes that its callbacks belong to
search.py       all states that a small model reaches
"""
