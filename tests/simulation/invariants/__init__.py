"""The invariants of docs/spec/invariants.md, one module per subject: see judge.py for which holds which."""
