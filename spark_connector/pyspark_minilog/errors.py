"""The connector's own errors. Each message names the problem and the remedy.

Errors of the cluster come from the client (`minilog.errors`), and the connector does not wrap them. error_display.py
decides how users see an error.
"""

from __future__ import annotations


class InvalidOption(ValueError):
    """An option or the schema of the DataFrame is not valid. The user must change the program."""


class DataLoss(RuntimeError):
    """Records that the query had yet to read do not exist any more (docs/spec/connector.md § 3)."""


class SchemaChanged(RuntimeError):
    """The schema of a topic has changed since the start of the query, and onSchemaChange is fail."""


class ReadStalled(RuntimeError):
    """Records that exist did not arrive in time."""


class InconsistentWrite(RuntimeError):
    """The reports of the tasks of a write do not belong together. Nothing of the write is committed."""


class NotAReplay(RuntimeError):
    """A generation is committed already, and this write is another one under the same number. Nothing is written."""


class LeaseLost(RuntimeError):
    """The lock on messages of a queue ended before they were settled. They are delivered again."""


def refused(option: str, value: object, remedy: str) -> InvalidOption:
    """The one form of a refusal: the option as the documentation spells it, the given value, and the remedy."""
    return InvalidOption(f"option '{option}' is '{value}': {remedy}")
