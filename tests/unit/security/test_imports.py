"""What security costs where it is off: nothing is imported for it."""

from __future__ import annotations

import subprocess
import sys

_LOOK = """
import sys
import minilog_broker.server.broker
from minilog_tools.cli.app import tree
tree()
print(sorted({each.partition(".")[0] for each in sys.modules} & {"cryptography", "jwt"}))
"""


def test_a_broker_without_security_imports_no_cryptography() -> None:
    ended = subprocess.run([sys.executable, "-c", _LOOK], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
