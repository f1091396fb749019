"""A replica that leads: what it takes in, what waits, its ISR, and what is told of its leadership."""
