"""Measurements: `python -m benchmarks NAME` runs one. Nothing fails on a time, only on records."""
