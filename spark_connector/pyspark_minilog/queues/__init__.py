"""Streams that read a queue, and the sink's settlement of what they have read.

reader           the stream, as Spark drives it
leases           what the driver asks the queue's coordinator; calls: the calls; locks: the thread that renews them
offset           the leases of one micro-batch, as JSON in the checkpoint
replay           has this query committed a batch before?
settlement       settles the messages of a micro-batch in the transaction of its rows
planned_batches  what becomes of a micro-batch, between the two processes of the driver
"""
