"""Topics with a schema: what their columns are, and how they may change.

evolution   the changes of schemas, by the path that programs import
rows        rows of a topic: from what programs give, into batches, and out of them for readers
conditions  `where`: its words, the condition on columns that they become, statistics, and both as messages
schema      columns and versions of a schema: their forms in text and messages, how they change, what a row must be
"""
