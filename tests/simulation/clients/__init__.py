"""What programs and operators do to a cluster, and what they were told.

workload.py                         topics, producers, consumers
transacting.py                      programs with transactions
queries.py, spark_sink.py           streaming queries that write with Spark's sink
committed_reading.py                who reads what is committed
operations.py                       leaders and replicas that move, topics that come and go, ends, groups
history.py, transaction_history.py  what they were told, and the judgement of it
retention.py                        what may be deleted by age and size
guest.py                            a user who may use one topic now and then
rights.py, probes.py                users with several rules, who try every call
"""
