"""The invariants of docs/spec/invariants.md that small models, histories of cores and the simulator share.

violation.py   what a world fails with
states.py      what the controller commits of a partition. V4, V10, V17
partition.py   copies and leaders of a partition, as the cores have them. V1 to V10, V17, V18
quorum.py      votes, leaders and the log of the metadata quorum. V11, V12, V20, V21
images.py      what brokers know of the metadata. V13
"""
