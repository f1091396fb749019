"""A replica that follows: its fetching, its throttle, and the reads of consumers from it."""
