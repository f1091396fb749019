"""A replica that leads: the batches that it takes in, the entries that wait, its ISR, and news of its leadership."""
