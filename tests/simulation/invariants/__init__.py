"""The invariants of REPLICATION.md section 1, one module per subject: see judge.py for which holds which."""
