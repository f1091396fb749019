"""The changes that a viewer may make, where the console runs with --actions and the brokers' rules allow them.

Each action has three steps. The viewer chooses the object, the console shows the consequence, and a form with the token
of this browser does it. The brokers judge and audit it as any call of this user.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from minilog.aio import Admin
from minilog.errors import InvalidArgument
from minilog.place_words import named_place
from minilog.types import GroupPosition, TopicPartition
from minilog_tools.console.cluster_view import ClusterView, partitions_of
from minilog_tools.console.forms import number_field, text_field
from minilog_tools.console.rendering import href

_PLACES = ("earliest", "latest")


@dataclass(frozen=True, slots=True)
class Consequence:
    """What an action will do, before it is done. `fields`: the fields that it needs. `asks`: the name and label of a
    field that is still missing. `back`: the page that the viewer comes from."""

    sentences: list[str]
    fields: dict[str, str]
    back: str
    asks: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """One action. `explain` gives its consequence. `perform` does it, and returns a sentence on the outcome."""

    path: str
    title: str
    button: str
    explain: Callable[[ClusterView, dict[str, str]], Awaitable[Consequence]]
    perform: Callable[[Admin, dict[str, str]], Awaitable[str]]
    is_final: bool = field(default=False)
    """Nobody can undo it."""


async def _explain_elect(view: ClusterView, fields: dict[str, str]) -> Consequence:
    name = text_field(fields, "topic", "the name of a topic")
    topic = await view.topic(name)
    moved = [
        partition for partition in topic.partitions if partition.replicas and partition.leader != partition.replicas[0]
    ]
    where = ", ".join(f"{partition.partition} (broker {partition.replicas[0]})" for partition in moved[:20])
    sentences = [
        f"{len(moved)} of {len(topic.partitions)} partitions of {name} are not led by their first replica"
        + (f": {where}." if moved else "."),
        "The first replica of each leads again where it is in sync. Those that are not in sync stay as they are.",
        "Producers and readers of a partition that moves wait some tenths of a second. They go on by themselves.",
    ]
    return Consequence(sentences, {"topic": name}, href("/topic", name=name))


async def _elect(admin: Admin, fields: dict[str, str]) -> str:
    name = text_field(fields, "topic", "the name of a topic")
    (topic,) = await admin.describe_topics([name])
    errors = await admin.elect_leaders(partitions_of(topic))
    failed = {partition.partition: error for partition, error in errors.items() if error is not None}
    done = f"{len(errors) - len(failed)} partitions of {name} are led by their first replica."
    first = next(iter(failed.items()), None)
    return done if first is None else f"{done} {len(failed)} are not: partition {first[0]}: {first[1]}"


async def _explain_trim(view: ClusterView, fields: dict[str, str]) -> Consequence:
    at = _partition(fields)
    topic = await view.topic(at.topic)
    partition = next((candidate for candidate in topic.partitions if candidate.partition == at.partition), None)
    if partition is None:
        raise InvalidArgument(f"topic {at.topic!r} has no partition {at.partition}")
    low, high = partition.log_start_offset, partition.high_watermark
    back, kept = href("/topic", name=at.topic), {"topic": at.topic, "partition": str(at.partition)}
    if low is None or high is None:
        raise InvalidArgument(f"the leader of partition {at.partition} of {at.topic!r} does not answer: try it later")
    to = number_field(fields, "to", "an offset")
    if to is None:
        label = f"The first offset that is kept, from {low} to {high}"
        return Consequence([f"Partition {at.partition} holds offsets {low} to {high}."], kept, back, ("to", label))
    if not low <= to <= high:
        raise InvalidArgument(f"partition {at.partition} holds offsets {low} to {high}, and {to} is outside")
    sentences = [
        f"{to - low} offsets of partition {at.partition} of {at.topic}, from {low} to {to - 1}, are deleted for good, "
        "on every replica. Nothing brings them back.",
        f"Readers that are below {to} follow their auto.offset.reset: they go on elsewhere, or end with an error.",
    ]
    return Consequence(sentences, {**kept, "to": str(to)}, back)


async def _trim(admin: Admin, fields: dict[str, str]) -> str:
    at, to = _partition(fields), number_field(fields, "to", "an offset")
    if to is None:
        raise InvalidArgument("the first offset that is kept is missing")
    starts = await admin.delete_records({at: to})
    return f"Partition {at.partition} of {at.topic} starts at {starts[at]}."


async def _explain_seek(view: ClusterView, fields: dict[str, str]) -> Consequence:
    group_id, at = text_field(fields, "group", "the id of a group"), _partition(fields)
    (look,) = await view.groups((group_id,))
    if look.description is None:
        raise look.trouble or InvalidArgument(f"there is no group {group_id!r}")
    offset = next((e for e in look.description.offsets if (e.topic, e.partition) == (at.topic, at.partition)), None)
    place = "has committed nothing" if offset is None else f"is at {offset.offset} of {offset.end_offset}"
    now = f"{group_id} {place} in partition {at.partition} of {at.topic}."
    back = href("/group", id=group_id)
    kept = {"group": group_id, "topic": at.topic, "partition": str(at.partition)}
    to = fields.get("to", "").strip()
    if not to:
        return Consequence([now], kept, back, ("to", "Where it goes on: an offset, earliest, or latest"))
    sentences = [
        now,
        f"Readers of the group that begin later go on at {_place(to)}: records between are read again, or skipped.",
        "A reader that runs now keeps its place, and its next commit takes the place of this one. Stop it before.",
    ]
    return Consequence(sentences, {**kept, "to": to}, back)


async def _seek(admin: Admin, fields: dict[str, str]) -> str:
    group_id, at = text_field(fields, "group", "the id of a group"), _partition(fields)
    offsets = await admin.seek_group(group_id, {at: _place(fields.get("to", "").strip())})
    return f"{group_id} goes on at {offsets[at]} in partition {at.partition} of {at.topic}."


async def _explain_abort(view: ClusterView, fields: dict[str, str]) -> Consequence:
    name = text_field(fields, "id", "a transactional id")
    description = await view.act(lambda admin: admin.describe_transaction(name))
    open_producers = [producer for producer in description.producers if producer.fate == "open"]
    partitions = {partition for producer in open_producers for partition in producer.partitions}
    sentences = [
        f"{len(open_producers)} writers of {name} have a transaction open, in {len(partitions)} partitions.",
        "Readers of committed records never see the records of these transactions. Nobody can undo an abort.",
        "The writers end with an error, and readers that wait for the end of the transaction go on.",
    ]
    return Consequence(sentences, {"id": name}, href("/transaction", id=name))


async def _abort(admin: Admin, fields: dict[str, str]) -> str:
    name = text_field(fields, "id", "a transactional id")
    return f"{await admin.abort_transaction(name)} writers of {name} are aborted."


async def _explain_cordon(view: ClusterView, fields: dict[str, str]) -> Consequence:
    number = _broker(fields)
    health = await view.health()
    broker = next((candidate for candidate in health.cluster.brokers if candidate.id == number), None)
    if broker is None:
        raise InvalidArgument(f"there is no broker {number}")
    if broker.cordoned:
        ends = " Its decommission ends, but for the moves that have begun." if broker.decommissioning else ""
        sentences = [f"Broker {number} takes new replicas again.{ends}"]
    else:
        sentences = [
            f"No new replica is placed on broker {number}. Those that it has stay, and it leads on.",
            "Where too few other brokers are left, nobody can create a topic. The same page undoes it.",
        ]
    return Consequence(sentences, {"broker": str(number), "off": "yes" if broker.cordoned else ""}, "/brokers")


async def _cordon(admin: Admin, fields: dict[str, str]) -> str:
    number = _broker(fields)
    if fields.get("off"):
        await admin.uncordon_broker(number)
        return f"Broker {number} takes new replicas again."
    await admin.cordon_broker(number)
    return f"Broker {number} gets no new replica from now on."


def _broker(fields: dict[str, str]) -> int:
    number = number_field(fields, "broker", "a broker")
    if number is None:
        raise InvalidArgument("the broker is missing: go back and choose one")
    return number


def _partition(fields: dict[str, str]) -> TopicPartition:
    number = number_field(fields, "partition", "a partition")
    if number is None:
        raise InvalidArgument("the partition is missing: go back and choose one")
    return TopicPartition(text_field(fields, "topic", "the name of a topic"), number)


def _place(text: str) -> GroupPosition:
    if (place := named_place(text)) in _PLACES:
        return place
    number = number_field({"to": text}, "to", "an offset")
    if number is None:
        raise InvalidArgument("the group's new place is missing: an offset, earliest, or latest")
    return number


ACTIONS = (
    Action("/cordon", "Cordon a broker", "Do it", _explain_cordon, _cordon),
    Action("/elect", "Elect preferred leaders", "Elect", _explain_elect, _elect),
    Action("/trim", "Delete records", "Delete them for good", _explain_trim, _trim, is_final=True),
    Action("/seek", "Seek a group", "Seek", _explain_seek, _seek),
    Action("/abort", "Abort a transaction", "Abort it for good", _explain_abort, _abort, is_final=True),
)
