"""What the connector refuses or reports itself. Each message is one sentence: what is wrong, and what to do.

Errors of the cluster come from the client (`minilog.errors`) and are not wrapped. Spark shows users the text of a
Python traceback, some forty lines of its own and our calls, the sentence last: so each method that Spark calls is
`told_first`.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

logger = logging.getLogger(__name__)

# What spark.sql.execution.pyspark.udf.hideTraceback.enabled sets for Python workers; read when an error is told.
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"


class InvalidOption(ValueError):
    """An option, or the DataFrame's schema, that cannot be meant: the user changes the program."""


class DataLoss(RuntimeError):
    """Records that were to be read are not there any more (SPARK.md, section 3)."""


class ReadStalled(RuntimeError):
    """Records that are there did not arrive in time."""


class InconsistentWrite(RuntimeError):
    """What the tasks of a write report does not belong together: nothing of it is committed."""


class NotAReplay(RuntimeError):
    """A generation is committed, and what is asked to be written under it again is something else: nothing of it is."""


def told_first(method: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """A method that Spark calls: of what we or the client refuse users are told the sentence, and not where in our code
    it was raised. Of any other error, a bug perhaps, they are."""

    @functools.wraps(method)
    def told(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        try:
            return method(*arguments, **named)
        except Exception as error:
            _tell_first(error)
            raise

    return told


def each_told_first(results: Iterator[_Result]) -> Iterator[_Result]:
    """The same for what is made while Spark takes it."""
    try:
        yield from results
    except Exception as error:
        _tell_first(error)
        raise


def _tell_first(error: Exception) -> None:
    """Have Spark leave the traceback out, by its own switch. It ends this process with the error that it tells, so that
    no other error is told without one."""
    from minilog.errors import MinilogError

    if isinstance(error, MinilogError | InvalidOption | DataLoss | ReadStalled | InconsistentWrite | NotAReplay):
        logger.debug("refused", exc_info=error)
        os.environ[_HIDE_TRACEBACK] = "1"


def refused(option: str, value: object, remedy: str) -> InvalidOption:
    """The one form of a refusal: the option as it is spelled in the documentation, the value given, the remedy."""
    return InvalidOption(f"option '{option}' is '{value}': {remedy}")
