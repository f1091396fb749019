"""The entry point of `minilog`: nothing heavy is imported before an interrupt can be caught."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

from minilog_broker.stop_signal import INTERRUPTED, ended_by_interrupt


class WithoutPandas:
    """Where pandas is installed, Arrow imports it for the first array of a process: half a second in which the loop of
    a broker stands, just elected. Nothing here has a use for it, so it counts as not installed."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("minilog's own processes do without pandas", name=fullname)


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong usage. No traceback ever reaches a user."""
    sys.meta_path.insert(0, WithoutPandas())
    try:
        if sys.argv[1:] == ["--version"]:
            from minilog_broker.version import (
                say_version,  # and nothing else: the answer takes as long as Python's start
            )

            say_version()
            return
        with ended_by_interrupt():
            from minilog_broker.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
