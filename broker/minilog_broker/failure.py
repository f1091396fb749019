"""The one failure that a command ends with: its text is the line that the user reads."""


class CommandFailed(Exception):
    """It did not work; the text says what, and what to do."""
