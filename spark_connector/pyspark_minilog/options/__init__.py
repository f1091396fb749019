"""What a user says: the options of source and sink, each read and checked once. Nothing here asks the cluster.

table           all options of source and sink; one that is not in it is refused
client_options  options that are settings of the client, and config_file: those of each host
offsets         offsets as JSON, in options and in checkpoints
places          where a query begins and ends; durations: lengths of time
subscription    which topics a query reads
limits          how much one micro-batch reads
queue_options   options of queues
catalog_tables  tables of Spark's catalog, and where their options are kept
"""
