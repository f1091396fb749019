"""How Spark's users are told what we refuse: the sentence alone, in the first line of Spark's error.

Spark shows the text of a Python traceback: some forty lines of its own and of our calls, the sentence last. So each
method of a source or sink that Spark calls is `told_first`.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from pyspark_minilog.errors import (
    DataLoss,
    InconsistentWrite,
    InvalidOption,
    NotAReplay,
    ReadStalled,
    SchemaChanged,
)

logger = logging.getLogger(__name__)

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_OURS = InvalidOption | DataLoss | ReadStalled | SchemaChanged | InconsistentWrite | NotAReplay
# What spark.sql.execution.pyspark.udf.hideTraceback.enabled sets for Python workers; read when an error is told.
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"


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

    if isinstance(error, MinilogError | _OURS):
        logger.debug("refused", exc_info=error)
        os.environ[_HIDE_TRACEBACK] = "1"
