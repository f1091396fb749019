"""What Admin asks, and what it makes of the answers."""
