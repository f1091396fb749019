"""This broker as a client of other brokers: its channels, streams and calls."""
