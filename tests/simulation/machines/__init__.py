"""What simulated processes run on: the network, and machines with the time and the disks of tests/world. It knows
nothing of brokers, but that a host runs one.

network.py, calls.py        links between processes, and gRPC's calls, channels and servers on them: the generated stubs
                            and servicers work unchanged
wire.py                     what is said, for whoever looks
disk_queue.py               the thread of a disk (tests/world/disk.py)
machine.py                  what a broker or a client takes from its machine: clocks, chance, disks, network
host.py                     one machine: its disk, the broker that runs on it or none, and what befalls it
"""
