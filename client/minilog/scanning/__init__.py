"""A bounded read of one topic: rows as Arrow, for programs and for what speaks Arrow.

places      where it begins and ends, as the user says it: a core
shape       which columns it gives, of topics with a schema and without: a core
records     the condition on records of a topic without a schema: a core
planned     what is wanted, planned and read, as values: a core
plan        what is read: fixed at the first use, so that a scan gives the same rows each time
reading     the streams and the threads that decode
newest_rows which rows are the newest ones of their keys: a core
latest      the two reads of the newest rows of keys
explain     what travels, and what is left out by which statistics: a core
scan        what the user sees
"""
