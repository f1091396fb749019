"""How Spark's users see a refusal: the sentence alone, in the first line of Spark's error.

Spark shows the text of a Python traceback. That is some forty lines of its own calls and of ours, with the sentence
last. So each method of a source or sink that Spark calls has the decorator `hides_traceback`.
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
    LeaseLost,
    NotAReplay,
    ReadStalled,
    SchemaChanged,
)

logger = logging.getLogger(__name__)

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_OURS = InvalidOption | DataLoss | ReadStalled | SchemaChanged | InconsistentWrite | NotAReplay | LeaseLost
# The setting spark.sql.execution.pyspark.udf.hideTraceback.enabled becomes this variable of Python workers. Spark reads
# the variable when it reports an error.
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"


def hides_traceback(method: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Decorates a method that Spark calls. If the connector or the client refuses something, the user sees the sentence
    without a traceback. Any other error is perhaps a bug, and keeps its traceback."""

    @functools.wraps(method)
    def called_by_spark(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        try:
            return method(*arguments, **named)
        except Exception as error:
            _hide_traceback(error)
            raise

    return called_by_spark


def hiding_traceback(results: Iterator[_Result]) -> Iterator[_Result]:
    """The same for the results of a generator, which runs while Spark takes its items."""
    try:
        yield from results
    except Exception as error:
        _hide_traceback(error)
        raise


def _hide_traceback(error: Exception) -> None:
    """Make Spark leave the traceback out, by Spark's own switch. Spark ends this process after the error, so the switch
    affects no other error."""
    from minilog.errors import MinilogError

    if isinstance(error, MinilogError | _OURS):
        logger.debug("refused", exc_info=error)
        os.environ[_HIDE_TRACEBACK] = "1"
