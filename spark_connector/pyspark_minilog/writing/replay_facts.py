"""What a replay has in common with its first write: whose it is, where its rows come from, and where they go. Pure.

    fact      of                                  in a stream    in df.write          in a block
    whose     query and number of micro-batch     (T and G)      the tasks say it     Spark says it to the driver
    offsets   the offsets of all sources          checkpoint     checkpoint           checkpoint
    topics    the ids of the topics               yes            yes                  of each write
    columns   the names of the columns            yes            yes                  of each write
    places    the offsets that groups get         -              -                    yes
    run       the micro-batch in one run of its   -              the tasks say it     (R)
              query: no replay has the same
    values    the rows (row_sums.py)              all of them, where the offsets are not known

The coordinator keeps them with a committed generation, in at most 64 bytes (docs/spec/connector.md § 6.5): a byte with
the form, a byte with a bit for each fact that is known, and then 12 bytes of each. The number of rows stands beside
them. A fact that is not known of one of two writes is not compared, with one exception: rows are dropped as a replay
only if their offsets show that they are one, or else the rows themselves. A replay may have other values, as with
uuid(), so these are no fact where the offsets are known.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from minilog.transactions import AlreadyCommitted
from pyspark_minilog.errors import NotAReplay

_FORM = 2
_FACT_BYTES = 12  # of SHA-256: a chance of one in 2^96 that two values look the same
_STORED = ("whose", "offsets", "topics", "columns", "places", "run", "values")  # at most five of them are known
_OF_ROWS = ("topics", "columns", "values", "earlier")
_COMPARED = ("whose", "offsets", "topics", "columns", "places", "earlier")
_NOT_SETTLED = 1 << 7  # beside the bits of the facts

# The forms of versions before this one: a digest of 32 bytes, and behind it one of these.
_EARLIER_BYTES = 32
_EARLIER_MARK_BYTES = 16
_EARLIER_UNSETTLED = b"/unsettled"

_DIFFERS = {
    "whose": "belong to another query, or to another micro-batch of it,",
    "offsets": "come from other offsets",
    "topics": "went to other topics",
    "columns": "have other columns",
    "places": "came with other offsets for a group",
    "earlier": "have other topics or columns, or came with other offsets for a group,",
    "values": "have other values",
}
_CAUSES = {
    "whose": "Perhaps a new query, or one with a new checkpoint, uses the name of an earlier query: give it a "
    "transactionalId or a name of its own",
    "topics": "Perhaps the query has another topic now, or its topic was deleted and created again: to have these rows "
    "there, begin with a new checkpoint at the offsets of this micro-batch",
    "values": "The sink does not know the offsets of both writes, so it compares the rows. If a query computes other "
    "values each time, give its writes the option checkpointLocation: the checkpoint of the query, as a folder that "
    "Spark's driver can read",
    "unproven": "Give the write the option checkpointLocation, as before: the checkpoint of the query, as a folder "
    "that Spark's driver can read",
}


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The micro-batch that a task or the function of a foreachBatch runs in, by Spark's local properties. All are None
    outside of a query. In Spark Connect they are None inside of one, too, so nobody knows whose the write is."""

    query_id: str | None = None
    batch_id: str | None = None
    run_id: str | None = None
    in_connect: bool = False

    @property
    def is_known(self) -> bool:
        return self.query_id is not None or not self.in_connect

    @property
    def whose(self) -> bytes:
        return digest([self.query_id, self.batch_id]) if self.is_known else b""

    @property
    def run(self) -> bytes:
        """Empty outside of a query. A program may set another job group in the place of Spark's run id: that one is no
        UUID."""
        try:
            run_id = uuid.UUID(self.run_id or "")
        except ValueError:
            return b""
        return digest([run_id.hex, self.batch_id]) if self.batch_id else b""


@dataclass(frozen=True, slots=True)
class Facts:
    """Digests of the facts of one write. An empty one is not known. `earlier` has topics and columns, and the places of
    a block, in one digest, as earlier versions kept them. It is compared, and never stored. `settles` is no fact to
    compare: without it the messages of a queue were not settled, since their locks had ended."""

    whose: bytes = b""
    offsets: bytes = b""
    topics: bytes = b""
    columns: bytes = b""
    places: bytes = b""
    run: bytes = b""
    values: bytes = b""
    earlier: bytes = b""
    settles: bool = field(default=True, kw_only=True)

    def stored(self) -> bytes:
        """The form that the coordinator keeps. With known offsets the values do not count."""
        known = [b"" if name == "values" and self.offsets else getattr(self, name) for name in _STORED]
        bits = sum(1 << number for number, fact in enumerate(known) if fact)
        return bytes([_FORM, bits | (0 if self.settles else _NOT_SETTLED)]) + b"".join(known)

    def to_hex(self) -> dict[str, str]:
        """The facts of rows, for a file of this version."""
        return {name: getattr(self, name).hex() for name in _OF_ROWS}

    @classmethod
    def from_hex(cls, named: dict[str, str]) -> Facts:
        """Of `to_hex`."""
        topics, columns, values, earlier = (bytes.fromhex(named[name]) for name in _OF_ROWS)
        return cls(topics=topics, columns=columns, values=values, earlier=earlier)

    def of(self, batch: Facts) -> Facts:
        """These facts of rows, with those of the micro-batch that they are of."""
        return replace(self, whose=batch.whose, offsets=batch.offsets, run=batch.run)


NO_FACTS = Facts()


def facts_of_rows(columns: Iterable[str], topic_ids: Iterable[bytes], values: int | None = None) -> Facts:
    """The facts of one write that its rows show. A topic that was deleted and created again is another topic. `values`
    is the sum of the rows, None if nobody has it."""
    names, ids = sorted(columns), sorted(topic_id.hex() for topic_id in set(topic_ids))
    of_values = b"" if values is None else digest(values)
    return Facts(topics=digest(ids), columns=digest(names), values=of_values, earlier=_whole_digest([names, ids]))


def facts_of_block(writes: Iterable[Facts], places: Iterable[tuple[str, str, int, int]], of_batch: Facts) -> Facts:
    """The facts of a block. They do not depend on the order of its writes, which are those with rows. `places` are
    (group, topic, partition, offset). `of_batch` has whose it is, and its offsets."""
    written, stored = list(writes), sorted(places)
    knows_values = all(each.values for each in written)
    facts = Facts(
        topics=digest(sorted(each.topics.hex() for each in written)),
        columns=digest(sorted([each.topics.hex(), each.columns.hex()] for each in written)),
        places=digest(stored),
        values=digest(sorted([each.topics.hex(), each.values.hex()] for each in written)) if knows_values else b"",
        earlier=_whole_digest([sorted(each.earlier.hex() for each in written), stored]),
    )
    return facts.of(of_batch)


def facts_of_offsets(offsets_digest: bytes) -> bytes:
    """The fact, of the SHA-256 of the offsets, or of nothing."""
    return offsets_digest[:_FACT_BYTES]


def read_facts(stored: bytes, *, is_stream: bool) -> Facts | None:
    """The facts that a coordinator has kept, also by an earlier version. None for a form that this version does not
    know."""
    if stored[:1] == bytes([_FORM]) and len(stored) % _FACT_BYTES == 2:
        bits, rest = stored[1], stored[2:]
        numbers = [number for number in range(len(_STORED)) if bits & 1 << number]
        if len(rest) != len(numbers) * _FACT_BYTES:
            return None
        facts = {
            _STORED[number]: rest[place * _FACT_BYTES : (place + 1) * _FACT_BYTES]
            for place, number in enumerate(numbers)
        }
        return Facts(**facts, settles=not bits & _NOT_SETTLED)
    return _read_earlier(stored, is_stream=is_stream)


def _read_earlier(stored: bytes, *, is_stream: bool) -> Facts | None:
    first, mark = stored[:_EARLIER_BYTES], stored[_EARLIER_BYTES:]
    if len(first) not in (0, _EARLIER_BYTES):
        return None
    if is_stream:
        is_known = mark in (b"", _EARLIER_UNSETTLED)
        return Facts(offsets=facts_of_offsets(first), settles=not mark) if is_known else None
    return Facts(earlier=first, run=mark[:_FACT_BYTES]) if len(mark) in (0, _EARLIER_MARK_BYTES) else None


def check_same(before: AlreadyCommitted, now: Facts, rows: int | None, *, is_stream: bool, advice: str = "") -> None:
    """Raises NotAReplay unless the committed write has the same facts, and as many rows. `rows` is None if they are not
    known yet. `advice` says what else may be the cause."""
    if before.contents is None:
        return
    held, count = read_facts(before.contents.offsets_digest, is_stream=is_stream), before.contents.rows
    if held is None:
        raise NotAReplay(
            f"{before.attempt} is committed already, by a newer version of minilog, and this version cannot compare "
            "this write with it. Nothing is written now. Upgrade pyspark-minilog where this query runs"
        )
    differ = [name for name in _COMPARED if _differs(getattr(held, name), getattr(now, name))]
    differences = []
    if rows is not None and rows != count:
        differences.append(f"the committed write has {count} rows, and this write has {rows} rows")
    if 0 in (rows, count):  # no rows go to no topic
        differ = [name for name in differ if name not in ("topics", "earlier")]
    if rows and not differences and not differ:
        differ = _unproven_values(held, now)
    if differ:
        facts = " and ".join(_DIFFERS[name] for name in differ)
        differences.append(f"the {count} committed rows {facts} than the rows of this write")
    if rows and not differences and held.offsets and not now.offsets:
        differ = ["unproven"]
        differences.append(
            "nothing shows that it has the offsets of the committed rows, since it does not know its own"
        )
    if not differences:
        return
    causes = "".join(f"{cause}. " for cause in (*(_CAUSES.get(name) for name in differ), advice) if cause)
    raise NotAReplay(
        f"{before.attempt} is committed already, and this write is no replay of it: {', and '.join(differences)}. "
        "Nothing is written now. Perhaps the checkpoint was set back or restored: put the checkpoint back as "
        f"it was after that batch, or begin with a new checkpoint behind the written records. {causes}If this is the "
        "same work, and its rows, their number, its topics or its columns may differ, set checkReplay to false: the "
        "batch stays as it is committed"
    )


def _unproven_values(held: Facts, now: Facts) -> list[str]:
    """Where the offsets are no proof, the rows themselves must be one."""
    knows_offsets = held.offsets and now.offsets
    return ["values"] if held.values and held.values != now.values and not knows_offsets else []


def is_compared(before: AlreadyCommitted, now: Facts, *, is_stream: bool) -> bool:
    """Whether offsets or rows have shown that a write is a replay. Earlier versions of minilog kept no fact of the
    rows."""
    held = None if before.contents is None else read_facts(before.contents.offsets_digest, is_stream=is_stream)
    return held is not None and bool((held.offsets and now.offsets) or (held.values and now.values))


def _differs(held: bytes, now: bytes) -> bool:
    return bool(held and now) and held != now


def check_other_run(before: AlreadyCommitted, now: Facts) -> None:
    """Raises NotAReplay for a second write of one micro-batch: Spark runs a micro-batch once in a run of its query."""
    if before.contents is None or not now.run:
        return
    held = read_facts(before.contents.offsets_digest, is_stream=False)
    if held is not None and held.run == now.run:
        raise NotAReplay(
            f"another write of this micro-batch has committed {before.attempt}, and this write would be taken for its "
            "replay. Nothing is written now. Write both in one block of pyspark_minilog.transaction, which commits "
            "all its writes at once, or give each write a transactionalId of its own"
        )


def digest(content: object) -> bytes:
    """The fact that this content makes."""
    return _whole_digest(content)[:_FACT_BYTES]


def _whole_digest(content: object) -> bytes:
    return hashlib.sha256(json.dumps(content).encode()).digest()
