"""Faults and operations, drawn from the seed: what the plan says, at random moments. Being written."""
