"""The principal of a call, its rights and its quotas, decided without I/O. The lowest layer, above the client alone."""
