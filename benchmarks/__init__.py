"""Measurements: `python -m benchmarks NAME` runs one. A benchmark is no test: nothing fails on a time, only on records."""
