"""The quorum's shell: whoever runs it, an error ends the broker."""

from __future__ import annotations

import pytest

from minilog.errors import InconsistentVoters
from minilog_broker.server.shells.quorum_shell import QuorumShell


class _Strange:
    """A node that does not belong to its cluster."""

    epoch, is_active, leader_id = 1, False, -1

    def take_effects(self) -> list[object]:
        raise InconsistentVoters("these are not ours")


def test_an_error_ends_the_broker_also_where_a_call_would_swallow_it() -> None:
    """A controller's call runs the shell too, and gRPC takes what the call raises."""
    failures: list[BaseException] = []
    shell = QuorumShell.__new__(QuorumShell)
    shell._node = _Strange()  # type: ignore[assignment]
    shell._failed = failures.append
    shell._running, shell._active_epoch, shell._known_leader_id = False, None, -1
    with pytest.raises(InconsistentVoters):
        shell.run()
    assert [str(each) for each in failures] == ["these are not ours"]
