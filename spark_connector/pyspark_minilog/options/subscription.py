"""Which topics a query reads: a list, a Java-style regular expression, or partitions named one by one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark_minilog.errors import InvalidOption, refused
from pyspark_minilog.options.offsets import Partition, parse_assignment

# Topic names are ASCII letters, digits, '.', '_' and '-', so the classes of Java need no more than ASCII here.
_CLASSES = {
    **dict.fromkeys(("Alpha", "L", "IsAlphabetic", "IsL"), "a-zA-Z"),
    **dict.fromkeys(("Lower", "Ll", "IsLowercase", "javaLowerCase"), "a-z"),
    **dict.fromkeys(("Upper", "Lu", "IsUppercase", "javaUpperCase"), "A-Z"),
    **dict.fromkeys(("Digit", "N", "Nd", "IsDigit"), "0-9"),
    "Alnum": "a-zA-Z0-9",
    "Punct": "._-",
    "ASCII": r"\x00-\x7f",
    "XDigit": "0-9a-fA-F",
}
_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|$)", re.DOTALL)
_CLASS_NAME = re.compile(r"([pP])(?:\{(\w+)\}|(\w))")
_GROUP_REFERENCE = re.compile(r"k<(\w+)>")


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The facts about one topic that a subscription needs. The id is hexadecimal."""

    name: str
    topic_id: str
    partitions: int
    internal: bool = False


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """One of the three options, after its check. `option` and `text` are the user's, for messages."""

    option: str
    text: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[Partition, ...] = ()

    def named(self) -> list[str]:
        """The topics of a list or an assignment."""
        return sorted({*self.topics, *(partition.topic for partition in self.assigned)})

    def matches(self, name: str) -> bool:
        """Whether the pattern matches this topic name."""
        return self.pattern is not None and re.compile(self.pattern, re.ASCII).fullmatch(name) is not None

    def asks_for(self, partition: Partition) -> bool:
        """Whether the query wants this partition, if it exists."""
        if self.assigned:
            return partition in self.assigned
        return partition.topic in self.topics or self.matches(partition.topic)

    def select(self, facts: Iterable[TopicFacts]) -> dict[str, TopicFacts]:
        """The topics to read, out of all topics, sorted. A pattern never matches an internal topic."""
        by_name = {topic.name: topic for topic in facts}
        if self.pattern is None:
            return {name: by_name[name] for name in self.named() if name in by_name}
        return {name: topic for name, topic in sorted(by_name.items()) if self.matches(name) and not topic.internal}

    def partitions(self, selected: dict[str, TopicFacts]) -> list[Partition]:
        """The partitions to read of the selected topics, sorted."""
        if self.assigned:
            return [p for p in self.assigned if p.topic in selected and p.partition < selected[p.topic].partitions]
        return [Partition(name, n) for name, topic in sorted(selected.items()) for n in range(topic.partitions)]

    def check_complete(self, selected: dict[str, TopicFacts]) -> None:
        """At the start of a query all named topics must exist. Later a missing topic is data loss. Raises
        InvalidOption."""
        missing: list[str] = [name for name in self.topics if name not in selected]
        missing += [str(partition) for partition in sorted({*self.assigned} - {*self.partitions(selected)})]
        if missing:
            raise refused(
                self.option, self.text, f"{', '.join(missing)} does not exist. Create it, or correct the name"
            )


def parse_subscribe(text: str) -> TopicSubscription:
    """`a,b,c`: topics by name."""
    topics = tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))
    if not topics:
        raise refused("subscribe", text, "name at least one topic, and put commas between several topics")
    return TopicSubscription("subscribe", text, topics=topics)


def parse_subscribe_pattern(text: str) -> TopicSubscription:
    """A regular expression that the whole name of a topic must match."""
    if not text.strip():
        raise refused("subscribePattern", text, "give a regular expression such as flights-.*")
    return TopicSubscription("subscribePattern", text, pattern=python_pattern(text))


def parse_assign(text: str) -> TopicSubscription:
    """`{"t":[0,1]}`: partitions one by one."""
    named = parse_assignment("assign", text)
    return TopicSubscription("assign", text, assigned=tuple(Partition(t, p) for t, ps in named.items() for p in ps))


def python_pattern(text: str) -> str:
    r"""A Java regular expression as a Python one.

    It translates `\Q…\E`, `(?<name>…)` and `\k<name>`, `\p{…}` for the classes that topic names can have, and `\z`. It
    refuses intersections and nested classes (`[a-z&&[^b]]`), and classes of other scripts. Raises InvalidOption.
    """
    pattern = _QUOTED.sub(lambda quoted: re.escape(quoted.group(1)), text)
    translated = "".join(_pieces(pattern, text))
    try:
        re.compile(translated, re.ASCII)
    except re.error as error:
        raise refused("subscribePattern", text, f"correct the regular expression ({error})") from None
    return translated


def _pieces(pattern: str, text: str) -> Iterable[str]:
    position, in_class = 0, False
    while position < len(pattern):
        rest = pattern[position:]
        if rest.startswith("\\"):
            piece, length = _escape(rest, in_class, text)
        elif in_class and (rest.startswith("&&") or rest[0] == "["):
            raise refused("subscribePattern", text, "write character classes without '&&' and without nested '['")
        elif not in_class and re.match(r"\(\?<\w", rest):
            piece, length = "(?P<", 3
        else:
            piece, length = rest[0], 1
            if rest[0] == "[":
                in_class = True
                # a ']' right behind the opening bracket is a member of the class, in both languages' practice
                opening = re.match(r"\[\^?\]?", rest)
                piece = opening.group(0) if opening else "["
                length = len(piece)
            elif rest[0] == "]":
                in_class = False
        position += length
        yield piece


def _escape(rest: str, in_class: bool, text: str) -> tuple[str, int]:
    """The Python form of the escape that `rest` begins with, and how long the Java form is."""
    named = _CLASS_NAME.match(rest, 1)
    if named:
        members = _CLASSES.get(named.group(2) or named.group(3))
        if members is None or (in_class and named.group(1) == "P"):
            raise refused("subscribePattern", text, f"replace '{named.group(0)}' by a class such as [a-zA-Z]")
        plain = members if in_class else f"[{'^' if named.group(1) == 'P' else ''}{members}]"
        return plain, named.end()
    reference = _GROUP_REFERENCE.match(rest, 1)
    if reference:
        return f"(?P={reference.group(1)})", reference.end()
    if rest.startswith("\\z"):
        return "\\Z", 2
    return rest[:2], 2


def exactly_one(given: dict[str, str]) -> TopicSubscription:
    """The subscription among `given` (subscribe, subscribePattern, assign; as far as they are set)."""
    parsers = {"subscribe": parse_subscribe, "subscribePattern": parse_subscribe_pattern, "assign": parse_assign}
    chosen = [name for name in parsers if name in given]
    match chosen:
        case [one]:
            return parsers[one](given[one])
        case []:
            raise InvalidOption(f"no topic is named: set exactly one of the options {', '.join(parsers)}")
        case _:
            both = " and ".join(f"'{name}' ({given[name]})" for name in chosen)
            raise InvalidOption(f"the options {both} exclude each other: keep one of them")
