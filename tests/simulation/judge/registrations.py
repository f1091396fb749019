"""Which life of each broker is registered, and how it is, as the committed records have it.

session    who joins an ISR is registered, not fenced and not stopping, when that is committed
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from minilog.partition_key import PartitionKey
from minilog.v1 import records_pb2
from tests.judges.violation import Violation

HEARD_S = 3.0  # until then every leader and voter that runs knows what is committed


@dataclass(slots=True)
class JudgedRegistration:
    """The life of a broker that is registered."""

    broker_epoch: int
    fenced: bool = True
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """Whose it was: the leader of a quorum epoch, by its wall clock. `elected_us`: by the same clock."""

    quorum_epoch: int
    controller_id: int
    decided_us: int
    elected_us: int


@dataclass(slots=True)
class NextLife:
    """Of a broker whose disk a fault has harmed when the metadata log ended at `since`: registered from there on is
    another life, which has again what counts. `registered_s`: when that was known first."""

    since: int
    registered_s: float | None = None

    def is_registered(self, broker_epoch: int) -> bool:
        return broker_epoch >= self.since

    def is_heard_of(self, broker_epoch: int, now_s: float) -> bool:
        """For so long that leaders and voters know it, too."""
        if not self.is_registered(broker_epoch):
            return False
        if self.registered_s is None:
            self.registered_s = now_s
        return now_s - self.registered_s > HEARD_S


class Registrations:
    """See the module's text. `fenced` hears of each life that is fenced, and who decided it."""

    def __init__(self, fenced: Callable[[records_pb2.BrokerStateRecord, Decision], None]) -> None:
        self.lives: dict[int, JudgedRegistration] = {}
        self._fenced = fenced

    def broker_epoch(self, number: int) -> int:
        """Of the life that is registered; -1 where none is."""
        life = self.lives.get(number)
        return -1 if life is None else life.broker_epoch

    def registered(self, number: int, broker_epoch: int) -> None:
        self.lives[number] = JudgedRegistration(broker_epoch)

    def changed(self, state: records_pb2.BrokerStateRecord, decision: Decision | None) -> None:
        """`decision`: None where it is not known whose it was."""
        number, life = state.broker_id, self.lives.get(state.broker_id)
        if life is None or life.broker_epoch != state.broker_epoch:
            text = f"a state of life {state.broker_epoch} of b{number} is committed, registered is {life}"
            raise Violation("V17", text)
        if state.fenced and not life.fenced and decision is not None:
            self._fenced(state, decision)
        life.fenced, life.stopping = state.fenced, state.stopping

    def check_joiners(self, key: PartitionKey, numbers: Collection[int]) -> None:
        """It is committed that they are in sync, and they were not."""
        for number in numbers:
            life = self.lives.get(number)
            if life is None or life.fenced or life.stopping:
                text = f"b{number} joins the ISR of partition {key.partition}, and registered is {life}"
                raise Violation("session", text)
