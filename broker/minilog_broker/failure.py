"""The failure that ends a command. Its text is the line that the user reads."""


class CommandFailed(Exception):
    """A command failed. The text names the problem and the remedy."""
