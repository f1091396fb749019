"""The worker's side of queues: the calls of QueueService, and the cores that decide about leases.

leases        what a worker holds: leases, their locks and their ranges
settling      verdicts that wait to be sent, as few ranges as possible, each sent until its outcome is certain
worker        all of it: what is leased, read, handed out, renewed and lost
message       what the program gets
client        the calls
descriptions  what Admin tells of queues
"""
