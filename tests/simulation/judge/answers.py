"""What an operator is told is so. V12: what is answered without an error is in the committed log below the offset of
the answer.

What is asked for is a list of claims: at some moment between the request and the answer the committed log had this
value. (Another operator may have changed it again by then.) An answer may be ahead of what is known to be committed: it
is looked at when so much is known, and at the end none is left.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minilog.security.access_rules import AccessRule, filter_from_wire, rule_from_wire
from minilog.v1 import admin_pb2, records_pb2, security_pb2
from minilog_broker.quorum.records import CommittedBatch
from tests.judges.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.machines.wire import Said

Key = tuple[Hashable, ...]
MISSING = None


@dataclass(frozen=True, slots=True)
class Claim:
    """The log had at `key` what `holds` is true of."""

    key: Key
    holds: Callable[[Any], bool]
    text: str


@dataclass(frozen=True, slots=True)
class _Answer:
    """One that waits until what is below `offset` is known to be committed."""

    who: str
    since: int
    offset: int
    claims: tuple[Claim, ...]


class History:
    """What the committed log said of each thing, and from which offset on."""

    def __init__(self) -> None:
        self.end = 0
        self._values: dict[Key, list[tuple[int, Any]]] = {}
        self.topics: dict[bytes, str] = {}
        self.rules: set[AccessRule] = set()

    def apply(self, batch: CommittedBatch) -> None:
        for offset, record in enumerate(batch.records, batch.base_offset):
            for key, value in self._told(record):
                self._values.setdefault(key, []).append((offset, value))
        self.end = batch.end_offset

    def held(self, claim: Claim, since: int, below: int) -> bool:
        """At some moment while the log grew from `since` to `below`."""
        values = [(offset, value) for offset, value in self._values.get(claim.key, ()) if offset < below]
        before = [value for offset, value in values if offset < since][-1:] or [MISSING]
        return any(map(claim.holds, [*before, *(value for offset, value in values if offset >= since)]))

    def _told(self, record: records_pb2.MetadataRecord) -> Iterator[tuple[Key, Any]]:
        match record.WhichOneof("record"):
            case "topic":
                self.topics[record.topic.topic_id] = record.topic.name
                yield ("topic", record.topic.topic_id), record.topic.name
                yield ("name", record.topic.name), record.topic.topic_id
            case "topic_deletion":
                topic_id = record.topic_deletion.topic_id
                yield ("topic", topic_id), MISSING
                yield ("name", self.topics[topic_id]), MISSING
            case "topic_config":
                config = record.topic_config
                value = config.value if config.HasField("value") else MISSING
                yield ("config", self.topics[config.topic_id], config.name), value
            case "topic_schema":
                schema = record.topic_schema.schema
                yield ("schema", self.topics[record.topic_schema.topic_id], schema.version), schema
            case "partition":
                state = record.partition
                yield ("partition", self.topics[state.topic_id], state.partition), state
            case "cluster_level":
                yield ("level",), record.cluster_level.level
            case "broker_cordon":
                cordon = record.broker_cordon
                yield ("cordon", cordon.broker_id), cordon if cordon.cordoned else MISSING
            case "broker_registration":
                yield ("broker", record.broker_registration.broker_id), True
            case "unregister_broker":
                yield ("broker", record.unregister_broker.broker_id), MISSING
                yield ("cordon", record.unregister_broker.broker_id), MISSING
            case "cluster":
                yield ("voters",), frozenset(voter.broker_id for voter in record.cluster.voters)
            case "voters":
                yield ("voters",), frozenset(voter.broker_id for voter in record.voters.voters)
                for voter in record.voters.voters:
                    yield ("voter", voter.broker_id), voter.directory_id
            case "voter_replaced":
                yield ("voter", record.voter_replaced.broker_id), record.voter_replaced.directory_id
            case "user_scram_credential":
                user = record.user_scram_credential
                yield ("user", user.user, user.mechanism), user.verifier if user.HasField("verifier") else MISSING
            case "access_rule":
                rule = rule_from_wire(record.access_rule.rule)
                self.rules.add(rule)
                yield ("rule", rule), MISSING if record.access_rule.removed else rule
            case "quota":
                quota = record.quota
                yield ("quota", quota.entity, quota.key), quota.value if quota.HasField("value") else MISSING
            case "broker_setting":
                setting = record.broker_setting
                whose = setting.broker_id if setting.HasField("broker_id") else None
                yield (
                    ("broker setting", whose, setting.name),
                    setting.value if setting.HasField("value") else MISSING,
                )
            case "delegation_token":
                token = record.delegation_token.token
                yield ("token", token.token_id), MISSING if record.delegation_token.removed else token


Claims = Callable[[History, Any, Any], Iterable[Claim]]


class Answers:
    """See the module's text. `known_end`: how much of the log is known to be committed."""

    def __init__(self, known_end: Callable[[], int]) -> None:
        self._known_end = known_end
        self._history = History()
        self._asked: weakref.WeakKeyDictionary[Said, tuple[Any, int]] = weakref.WeakKeyDictionary()
        self._waiting: list[_Answer] = []

    def saw(self, call: Said, message: Any, answers: bool) -> None:
        """A request, or an answer, to an operator."""
        if (claims := CLAIMS.get(call.method)) is None:
            return
        if not answers:
            self._asked[call] = message, self._known_end()
            return
        request, since = self._asked[call]
        if hasattr(message, "error") and message.error.code:
            return
        found = tuple(claims(self._history, request, message))
        if found:
            who = f"{call.host} to {call.method.rpartition('/')[2]}"
            self._waiting.append(_Answer(who, since, message.metadata_offset, found))
            self._look()

    def committed(self, batch: CommittedBatch) -> None:
        """So much more is known."""
        self._history.apply(batch)
        self._look()

    def _look(self) -> None:
        """At those of whom enough is known."""
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            if answer.offset > self._history.end:
                self._waiting.append(answer)
                continue
            for claim in answer.claims:
                if not self._history.held(claim, answer.since, answer.offset):
                    text = f"{answer.who} is answered below offset {answer.offset} that {claim.text}, and it is not in"
                    raise Violation("V12", f"{text} the committed log, which was {answer.since} long at the request")

    def check_over(self) -> None:
        """Nothing befalls the cluster any more, and all is known."""
        if self._waiting:
            answer = self._waiting[0]
            text = f"{answer.who} is answered with offset {answer.offset}, and no more is committed than "
            raise Violation("V12", f"{text}{self._history.end}")


# -- what each answer claims


def _is(key: Key, value: Any, text: str) -> Claim:
    return Claim(key, lambda held: bool(held == value), text)


def _done(request: Any, answer: Any) -> Iterator[tuple[Any, Any]]:
    """Of each topic what was asked for, and the answer, where it is no error."""
    results = {each.name: each for each in answer.results if not each.error.code}
    for asked in request.topics:
        if asked.name in results:
            yield asked, results[asked.name]


def _of_topic(asked: Any, configs: Mapping[str, str]) -> Iterator[Claim]:
    name = asked.name
    if asked.HasField("num_partitions"):
        last = asked.num_partitions - 1
        yield Claim(("partition", name, last), lambda state: state is not None, f"{name} has partition {last}")
    for key, value in configs.items():
        yield _is(("config", name, key), value, f"{name} has {key}={value}")
    if asked.HasField("schema"):
        version = asked.schema.version
        text = f"version {version} of the schema of {name} is the one that was asked for"
        yield Claim(("schema", name, version), lambda held: held is not None and _same(held, asked.schema), text)


def _same(held: Any, asked: Any) -> bool:
    """By names: ids are given by the controller."""
    return [(each.name, each.nullable) for each in held.fields] == [(each.name, each.nullable) for each in asked.fields]


def _created(history: History, request: Any, answer: Any) -> Iterator[Claim]:
    if request.validate_only:
        return
    for asked, result in _done(request, answer):
        yield _is(("topic", result.topic_id), asked.name, f"{asked.name} has the id {result.topic_id.hex()}")
        yield from _of_topic(asked, asked.configs)


def _deleted(history: History, request: Any, answer: Any) -> Iterator[Claim]:
    for result in answer.results:
        if not result.error.code:
            yield _is(("topic", result.topic_id), MISSING, f"{result.name or result.topic_id.hex()} is deleted")


def _altered(history: History, request: Any, answer: Any) -> Iterator[Claim]:
    for asked, _ in _done(request, answer):
        yield from _of_topic(asked, asked.set_configs)
        for key in asked.unset_configs:
            yield _is(("config", asked.name, key), MISSING, f"{asked.name} has no {key}")


def _elected(history: History, request: Any, answer: Any) -> Iterator[Claim]:
    for result in answer.results:
        if not result.error.code:
            at = ("partition", result.name, result.partition)
            leader, text = result.leader_id, f"b{result.leader_id} leads partition {result.partition} of {result.name}"
            yield Claim(at, _led_by(leader), text)


def _reassigned(history: History, request: Any, answer: Any) -> Iterator[Claim]:
    done = {(each.name, each.partition) for each in answer.results if not each.error.code}
    for asked in request.reassignments:
        if (asked.name, asked.partition) in done and asked.replicas:
            wanted = list(asked.replicas)
            text = f"partition {asked.partition} of {asked.name} goes to {wanted}"
            yield Claim(("partition", asked.name, asked.partition), _goes_to(wanted), text)


def _led_by(leader: int) -> Callable[[Any], bool]:
    return lambda state: state is not None and state.leader_id == leader


def _goes_to(wanted: list[int]) -> Callable[[Any], bool]:
    """Also where the reassignment is done."""
    return lambda state: (
        state is not None and [each for each in state.replicas if each not in state.removing_replicas] == wanted
    )


def _voter(history: History, request: Any, answer: Any) -> Iterator[Claim]:
    text = f"voter {request.broker_id} has directory {answer.directory_id.hex()}"
    yield _is(("voter", request.broker_id), answer.directory_id, text)


def _voter_altered(history: History, request: Any, answer: Any) -> Iterator[Claim]:
    yield _is(("voters",), frozenset(answer.voter_ids), f"the voters are {list(answer.voter_ids)}")


def _broker_altered(history: History, request: Any, answer: Any) -> Iterator[Claim]:
    key, change = ("cordon", request.broker_id), request.change
    if change == admin_pb2.BROKER_CHANGE_CORDON:
        yield Claim(key, lambda held: held is not MISSING, f"b{request.broker_id} is cordoned")
    elif change == admin_pb2.BROKER_CHANGE_UNCORDON:
        yield _is(key, MISSING, f"b{request.broker_id} is not cordoned")
    elif change == admin_pb2.BROKER_CHANGE_DECOMMISSION:
        text = f"b{request.broker_id} is being decommissioned"
        yield Claim(key, lambda held: held is not MISSING and held.decommissioning, text)
    else:
        yield _is(("broker", request.broker_id), MISSING, f"b{request.broker_id} is forgotten")


def _level(history: History, request: Any, answer: Any) -> Iterator[Claim]:
    yield Claim(("level",), lambda held: (held or 1) >= answer.level, f"the level is {answer.level}")


def _users(history: History, request: Any, answer: Any) -> Iterator[Claim]:
    for asked in request.alterations:
        if asked.HasField("verifier"):
            key = ("user", asked.name, asked.mechanism)
            yield _is(key, asked.verifier, f"{asked.name} has another password")
        else:
            of = (asked.mechanism,) if asked.mechanism else security_pb2.ScramMechanism.values()
            for mechanism in of:
                yield _is(("user", asked.name, mechanism), MISSING, f"{asked.name} is deleted")


def _rules(history: History, request: Any, answer: Any) -> Iterator[Claim]:
    for rule in map(rule_from_wire, request.rules):
        yield _is(("rule", rule), rule, f"{rule} is there")


def _rules_gone(history: History, request: Any, answer: Any) -> Iterator[Claim]:
    filters = list(map(filter_from_wire, request.filters))
    known = (rule for rule in history.rules if any(each.matches(rule) for each in filters))
    for rule in {*map(rule_from_wire, answer.deleted), *known}:
        yield _is(("rule", rule), MISSING, f"{rule} is gone")


def _quotas(history: History, request: Any, answer: Any) -> Iterator[Claim]:
    for asked in request.alterations:
        value = asked.value if asked.HasField("value") else MISSING
        yield _is(("quota", asked.entity, asked.key), value, f"{asked.entity} has {asked.key}={value}")


def _broker_settings(history: History, request: Any, answer: Any) -> Iterator[Claim]:
    whose = request.broker_id if request.HasField("broker_id") else None
    for name, value in (*request.set_configs.items(), *((name, MISSING) for name in request.unset_configs)):
        yield _is(("broker setting", whose, name), value, f"{name} of broker {whose} is {value}")


def _token(history: History, request: Any, answer: Any) -> Iterator[Claim]:
    yield _is(("token", answer.token.token_id), answer.token, f"there is a token of {answer.token.owner}")


def _token_until(history: History, request: Any, answer: Any) -> Iterator[Claim]:
    until, text = answer.expiry_timestamp_ms, f"the token {request.token_id} ends at {answer.expiry_timestamp_ms}"
    ends_at_once = "expiry_period_ms" in request.DESCRIPTOR.fields_by_name
    yield Claim(
        ("token", request.token_id),
        lambda held: ends_at_once if held is None else bool(held.expiry_timestamp_ms == until),
        text,
    )


CLAIMS: Mapping[str, Claims] = {
    f"/minilog.v1.{path}": claims
    for path, claims in {
        "AdminService/CreateTopics": _created,
        "AdminService/DeleteTopics": _deleted,
        "AdminService/AlterTopics": _altered,
        "AdminService/ElectLeaders": _elected,
        "AdminService/AlterPartitionReassignments": _reassigned,
        "AdminService/ReplaceVoter": _voter,
        "AdminService/AlterVoter": _voter_altered,
        "AdminService/AlterBroker": _broker_altered,
        "AdminService/UpgradeLevel": _level,
        "AdminService/AlterBrokerSettings": _broker_settings,
        "SecurityService/AlterUsers": _users,
        "SecurityService/CreateAccessRules": _rules,
        "SecurityService/DeleteAccessRules": _rules_gone,
        "SecurityService/AlterQuotas": _quotas,
        "SecurityService/CreateDelegationToken": _token,
        "SecurityService/RenewDelegationToken": _token_until,
        "SecurityService/ExpireDelegationToken": _token_until,
    }.items()
}
