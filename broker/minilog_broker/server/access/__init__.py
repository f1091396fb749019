"""The caller of each call, and its rights: the one gate in front of all services."""
