"""The invariants of docs/spec/invariants.md, each judged by one piece of code. A world gives what it shows and knows.

violation.py       what a world fails with
states.py          what the controller commits of a partition. V4, V5, V6, V10, V17
partition.py       copies and leaders of a partition. V1 to V10, V14, V17, V18
views.py           a log as the headers of its batches say, read from its files
quorum.py          votes, leaders and the log of the metadata quorum. V11, V12, V20, V21
images.py          what brokers know of the metadata. V13
groups.py          members and what they hold. M1 to M5
queues.py          deliveries, the coordinator's log, dead letters and redrives. Q1 to Q3, Q5 to Q8
queue_log.py       the records of the coordinator's log, read without its code
compaction.py      what compaction may take of a copy. K1 to K5
keyed_records.py   the records of compacted topics
"""
