"""Conditions on columns, and the statistics of batches that they are compared with."""
