"""How far a query is behind, for those who watch it. observation.py, above all rooms, is what a user calls.

unread            the unread part of the topics, which a source reports with its latest offset
first_unread      the time of the first unread record
behind            both of them, from Spark's progress events
observed_metrics  the metrics
"""
