"""Clients, each a program of its own, as a user's is: the last line that it prints is a JSON object."""
