"""The requests of Admin, and its results from the answers."""
