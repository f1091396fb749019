"""Whole brokers and clients, the ones that ship, on virtual time: from one seed, in one thread.

cluster.py             all of it together, from a seed
machines/              what processes run on: time, disks, the network
clients/               what programs and operators do, and were told
plan.py, themes.py     what one seed does
faults/                what befalls the cluster
judge/                 what must be, and what may be lost, seen from outside
mutants/, hunt.py      wrong rules, and the search for them
narrowing.py           how a theme narrows a plan
run.py, scene.py       one seed and many; histories told by hand
violation.py           what a run fails with
"""
