"""The sessions that followers and consumers have on this broker."""
