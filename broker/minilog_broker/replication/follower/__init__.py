"""A replica that follows: its fetching, its throttle, and what consumers read from it."""
