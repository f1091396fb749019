"""What a producer decides, without I/O: where records go, how they are batched, what is sent and sent again.

partitioner   which partition
accumulator   records into batches, within buffer.memory; the one part that user threads touch
lane          one partition's batches in sequence order
identity      under whose name: a producer id, or a transaction's
streams       to which brokers, and what goes out next
sender        all lanes: sends, answers, retries, time-outs, producer ids
"""
