"""The entry point of `minilog`: nothing heavy is imported before an interrupt can be caught."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong usage. No traceback ever reaches a user."""
    try:
        from minilog_broker.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        print("minilog: interrupted", file=sys.stderr)
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
