"""Who asks, and what they may do: decided without I/O. The lowest layer: it knows the client library alone."""
