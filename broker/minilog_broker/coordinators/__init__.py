"""Replicated state machines on internal topics: one mechanism (`coordinator`, `table`) for transactions and groups."""
