"""Who is answered what, by the committed users, rules and delegation tokens. V22, on all calls of all clients.

It looks at what brokers send. Whose a call is, it finds out from the exchange that its session began with. What a call
needs is in rights_of_calls.py, and what rules allow in rules.py.

known    a broker says with each heartbeat how much of the metadata it has replayed: by the rules of then it answers, or
         by later ones. A broker that hears nothing of the metadata says nothing, and is judged by what it said last
calls    are asked for when they come: by what was known when they were sent
streams  are ended when their caller may not do any more what they did: within STREAM_S of what is known
sessions end with their users' passwords, and with their delegation tokens, in the same time; and nobody who is known to
         be deleted logs in
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minilog.net.sessions import SESSION_METADATA
from minilog.security.access_rules import Operation, ResourceKind, rule_from_wire
from minilog_broker.quorum.records import CommittedBatch
from tests.judges.violation import Violation
from tests.simulation.judge.rights_of_calls import NEEDS, of_ids
from tests.simulation.judge.rules import Asker, Right, RulesOfTime
from tests.simulation.machines.identities import ADMIN

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.judge.truth import Truth
    from tests.simulation.machines.wire import Said

STREAM_S = 1.5  # brokers look at once; how late they say it is not known
CALL_S = 0.1
SETTLED_S = 2.0  # without another rule: all brokers go by what is there
_SERVICE = "/minilog.v1.{}"
_AUTHENTICATE = _SERVICE.format("AuthenticationService/Authenticate")
_PRODUCE, _FETCH = _SERVICE.format("DataService/Produce"), _SERVICE.format("DataService/Fetch")
_INIT = _SERVICE.format("MetadataService/InitProducerId")
_HEARTBEAT = _SERVICE.format("PeerService/Heartbeat")
_TOKENS = _SERVICE.format("SecurityService/DescribeDelegationTokens")
_OF_SECURITY = ("access_rule", "user_scram_credential", "delegation_token")


@dataclass(frozen=True, slots=True)
class _Session:
    """`below`: no record from there on was written when it began."""

    user: str
    token_id: str | None
    below: int


@dataclass(slots=True)
class _Known:
    """What a life of a broker says of itself: until when it has replayed, and when it said so."""

    life: int
    said: deque[tuple[float, int]] = field(default_factory=lambda: deque([(0.0, 0)]))
    resumed_s: float = 0.0


@dataclass(slots=True)
class _Asked:
    """A call under way: its request, and of a stream which transaction an entry is of."""

    message: Any
    sent_s: float
    transactions: dict[int, str] = field(default_factory=dict)


class Rights:
    """See the module's text."""

    def __init__(self, cluster: SimulatedCluster, truth: Truth) -> None:
        self._cluster = cluster
        self._truth = truth
        self.rules = RulesOfTime()
        self._changed_s = 0.0
        self._names: dict[bytes, str] = {}
        self._credentials: dict[str, list[tuple[int, bool]]] = {}  # of users: another one, or none
        self._tokens: dict[str, list[tuple[int, bool]]] = {}  # made; and those that are no more, or end sooner
        self._owners: dict[str, str] = {}
        self._expiries: dict[str, int] = {}
        self._logins: weakref.WeakKeyDictionary[Said, tuple[str, bool]] = weakref.WeakKeyDictionary()
        self._asked: weakref.WeakKeyDictionary[Said, _Asked] = weakref.WeakKeyDictionary()
        self._sessions: dict[bytes, _Session] = {}
        self._known: dict[int, _Known] = {}

    # -- what is committed

    def committed(self, batch: CommittedBatch) -> None:
        for offset, record in enumerate(batch.records, batch.base_offset):
            which = record.WhichOneof("record")
            if which == "topic":
                self._names[record.topic.topic_id] = record.topic.name
            elif which == "access_rule":
                self.rules.changed(offset, rule_from_wire(record.access_rule.rule), removed=record.access_rule.removed)
                self._changed_s = self._cluster.now_s
            elif which == "user_scram_credential":
                credential = record.user_scram_credential
                there = credential.HasField("verifier")
                self._credentials.setdefault(credential.user, []).append((offset, there))
                self._changed_s = self._cluster.now_s
            elif which == "delegation_token":
                self._token(offset, record.delegation_token)

    def _token(self, offset: int, record: Any) -> None:
        token = record.token
        self._owners.setdefault(token.token_id, token.owner.removeprefix("User:"))
        former = self._expiries.get(token.token_id)
        if record.removed or former is None or token.expiry_timestamp_ms < former:
            self._tokens.setdefault(token.token_id, []).append((offset, not record.removed))
        self._expiries[token.token_id] = token.expiry_timestamp_ms

    # -- what is said

    def saw(self, call: Said, message: Any, answers: bool) -> None:
        if call.method == _HEARTBEAT:
            if not answers:
                self._said(*self._truth.speaker(call.client), message.metadata_offset)
        elif call.method == _AUTHENTICATE:
            self._authenticates(call, message, answers=answers)
        elif call.method in NEEDS and call.certificate is None:
            if answers:
                self._answered(call, message)
            else:
                self._asks(call, message)

    def look(self) -> None:
        """Who stands still does not look at streams."""
        for host in self._cluster.hosts.values():
            if host.process is not None and host.process.stands_still and host.number in self._known:
                self._known[host.number].resumed_s = self._cluster.now_s

    def _said(self, number: int, life: int, offset: int) -> None:
        known = self._known.get(number)
        if known is None or known.life != life:
            known = self._known[number] = _Known(life)
        while len(known.said) > 1 and known.said[1][0] < self._cluster.now_s - 2 * STREAM_S:
            known.said.popleft()
        known.said.append((self._cluster.now_s, offset))

    def _known_below(self, call: Said, at_s: float) -> int:
        """What the broker that answers had replayed by then, by its own word."""
        number, life = self._truth.speaker(call.host)
        known = self._known.get(number)
        if known is None or known.life != life:
            return 0
        return max((offset for said_s, offset in known.said if said_s <= at_s), default=0)

    def _authenticates(self, call: Said, message: Any, *, answers: bool) -> None:
        if not answers:
            first = bytes(message.content).decode(errors="replace").split(",")
            if call not in self._logins and len(first) > 2 and first[2].startswith("n="):
                self._logins[call] = first[2][2:], "tokenauth=true" in first
        elif message.session and call in self._logins:
            name, is_token = self._logins[call]
            session = _Session(
                self._owners.get(name, "") if is_token else name,
                name if is_token else None,
                self._truth.metadata.written_end,
            )
            self._sessions[message.session] = session
            self._check_known(call, session, self._known_below(call, self._cluster.now_s - CALL_S))

    def _asks(self, call: Said, message: Any) -> None:
        asked = self._asked.get(call)
        if asked is None:
            asked = self._asked[call] = _Asked(message, self._cluster.now_s)
        if call.method == _PRODUCE:
            for entry in message.entries:
                if entry.HasField("transaction"):
                    asked.transactions[entry.correlation_id] = entry.transaction.transactional_id

    # -- what must be

    def _answered(self, call: Said, message: Any) -> None:
        is_stream = call.method in (_PRODUCE, _FETCH)
        asked = self._asked.get(call)
        if asked is None:  # a sign of life on a stream that has just begun
            if not is_stream or message.ByteSize():
                raise Violation("V22", f"{call.host} answers {call.method} of {call.client}, who has asked nothing")
            return
        session = self._sessions.get(dict(call.metadata).get(SESSION_METADATA, b""))
        if session is None:
            raise Violation("V22", f"{call.host} answers {call.method} of {call.client}, which has no session")
        if session.user == ADMIN:
            return
        at_s = self._cluster.now_s - STREAM_S if is_stream else asked.sent_s - CALL_S
        number, _ = self._truth.speaker(call.host)
        if is_stream and number in self._known and self._known[number].resumed_s > at_s:
            return
        below = self._known_below(call, at_s)
        self._check_session(call, session, below)
        asker = Asker(session.user, call.client)
        for right in self._needed(call, asked, message):
            if not self.rules.may_be_allowed(asker, right, below):
                self._is_wrong(f"{call.host} answers {call.method} of {asker}, and no rule allows {right}", below)
        if call.method == _INIT and not message.error.code:
            self._check_any(call, asker, below)
        if session.token_id is not None and "DelegationToken" in call.method and not message.error.code:
            self._is_wrong(f"{call.host} answers {call.method} of {asker}, who has shown a token alone", below)
        if call.method == _TOKENS:
            self._check_told_tokens(call, asker, message, below)

    def _needed(self, call: Said, asked: _Asked, message: Any) -> Iterator[Right]:
        if call.method == _FETCH:
            runs = [run for run in message.runs if not run.error.code]
            yield from of_ids(Operation.READ, runs, self._names)
        elif call.method == _PRODUCE:
            for result in message.results:
                transaction = asked.transactions.pop(result.correlation_id, None)
                if not result.error.code:
                    yield from of_ids(Operation.WRITE, [result], self._names)
                    if transaction is not None:
                        yield Right(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, transaction)
        else:
            yield from NEEDS[call.method](asked.message, message, self._names)

    def _check_any(self, call: Said, asker: Asker, below: int) -> None:
        """A producer id is for who may write anything."""
        any_topic = (Right(Operation.WRITE, ResourceKind.TOPIC, each) for each in self.rules.names(ResourceKind.TOPIC))
        rights = (Right(Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER), *any_topic)
        if not any(self.rules.may_be_allowed(asker, each, below) for each in rights):
            self._is_wrong(f"{call.host} gives {asker} a producer id, and {asker.user} may write nothing", below)

    def _check_told_tokens(self, call: Said, asker: Asker, message: Any, below: int) -> None:
        own = f"User:{asker.user}"
        others = [each for each in message.tokens if own != each.owner and own not in each.renewers]
        right = Right(Operation.DESCRIBE, ResourceKind.CLUSTER)
        if others and not self.rules.may_be_allowed(asker, right, below):
            self._is_wrong(f"{call.host} tells {asker} of tokens of {sorted({each.owner for each in others})}", below)

    def _check_session(self, call: Said, session: _Session, below: int) -> None:
        """It began with what is no more, and the broker knows that."""
        changes = [*self._credentials.get(session.user, ()), *self._tokens.get(session.token_id or "", ())]
        if any(session.below <= offset < below for offset, _ in changes):
            text = f"{call.host} answers {call.method} in a session of {session.user}, whose password or token is "
            self._is_wrong(f"{text}no more since offset {max(at for at, _ in changes)}", below)

    def _check_known(self, call: Said, session: _Session, below: int) -> None:
        """Who logs in is there."""
        changes = self._credentials.get(session.user, [])
        if session.token_id is not None:
            changes = self._tokens.get(session.token_id, [])
        states = [there for offset, there in changes if offset < below][-1:]
        states += [there for offset, there in changes if offset >= below]
        if states and not any(states):
            self._is_wrong(f"{call.host} gives a session to {session.user}, whose user or token is no more", below)

    def _is_wrong(self, text: str, below: int) -> None:
        """Unless something comes that is committed, and not known to be here."""
        later = self._truth.metadata.later_records()
        if not any(record.WhichOneof("record") in _OF_SECURITY for record in later):
            raise Violation("V22", f"{text}; it has said that it knows all below {below}")

    # -- for who asks

    def must_be_allowed(self, asker: Asker, path: str, request: Any) -> bool:
        """For certain, of a call that names all that it takes, on every broker that hears of the metadata."""
        rights: Iterable[Right] = list(NEEDS[path](request, None, self._names))
        settled = self._cluster.now_s - self._changed_s > SETTLED_S
        return settled and bool(rights) and all(self.rules.is_allowed_now(asker, right) for right in rights)
