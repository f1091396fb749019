"""Whole brokers and clients, the ones that ship, on virtual time: from one seed, in one thread.

loop.py       the event loop on virtual time, and the processes that its callbacks belong to
network.py    links between processes: latency, cuts, connections that break
calls.py      gRPC's calls, channels and servers on that network: the generated stubs and servicers work unchanged
wire.py       what is said, for whoever looks
machine.py    what a broker or a client takes from its machine: clocks, chance, disks, network
host.py       one machine: its disk, the broker that runs on it or none, and what befalls it
cluster.py      all of it together, from a seed
plan.py, themes.py, faults/                        what befalls it
workload.py, transacting.py, operations.py         what programs and operators do meanwhile
judge/, exceptions.py, retention.py, run.py        what must be, and what may be lost; one seed, and many
"""
