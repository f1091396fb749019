"""What the connector refuses or reports itself. Each message is one sentence: what is wrong, and what to do.

Errors of the cluster come from the client (`minilog.errors`) and are not wrapped. How users see them: telling.py.
"""

from __future__ import annotations


class InvalidOption(ValueError):
    """An option, or the DataFrame's schema, that cannot be meant: the user changes the program."""


class DataLoss(RuntimeError):
    """Records that were to be read are not there any more (docs/spec/connector.md § 3)."""


class SchemaChanged(RuntimeError):
    """The schema of a topic is another one than at the query's start, and onSchemaChange is fail."""


class ReadStalled(RuntimeError):
    """Records that are there did not arrive in time."""


class InconsistentWrite(RuntimeError):
    """What the tasks of a write report does not belong together: nothing of it is committed."""


class NotAReplay(RuntimeError):
    """A generation is committed, and what is asked to be written under it again is something else: nothing of it is."""


def refused(option: str, value: object, remedy: str) -> InvalidOption:
    """The one form of a refusal: the option as it is spelled in the documentation, the value given, the remedy."""
    return InvalidOption(f"option '{option}' is '{value}': {remedy}")
