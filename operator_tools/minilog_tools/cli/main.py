"""The entry point of `minilog`. It imports nothing heavy before it can catch an interrupt."""

from __future__ import annotations

import sys

from minilog_broker.imports import Without, uncollected
from minilog_broker.stop_signal import INTERRUPTED, ended_by_interrupt
from minilog_tools.extras import missing_extra

# If pandas is installed, Arrow imports it for the first array of a process. That would stop the loop of a broker for
# half a second, perhaps just after its election. Nothing here uses pandas.
WITHOUT_PANDAS = Without("pandas")


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong usage. No traceback ever reaches a user."""
    sys.meta_path.insert(0, WITHOUT_PANDAS)
    try:
        if sys.argv[1:] == ["--version"]:
            from minilog_broker.version import (
                say_version,  # and nothing else, so that the answer takes no longer than Python's start
            )

            say_version()
            return
        with ended_by_interrupt(), uncollected():
            from minilog_tools.cli.app import run

        code = run(sys.argv[1:])
    except ModuleNotFoundError as error:
        if (remedy := missing_extra(error)) is None:
            raise
        print(f"minilog: {remedy}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
