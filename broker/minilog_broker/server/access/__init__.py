"""Who calls, and whether that is allowed: the one gate in front of all services."""
