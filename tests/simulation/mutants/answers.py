"""Wrong rules of what an operator is told: that it is done, where it is not, or not for certain; and of levels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minilog.v1 import admin_pb2, records_pb2, security_pb2
from minilog_broker.controller import ledger, topics
from minilog_broker.controller.controller import Controller
from minilog_broker.controller.controller_effects import ControllerAnswer
from minilog_broker.controller.security import Security
from minilog_broker.controller.topic_schemas import evolved_schemas
from minilog_broker.storage.data_directory import DataDirectory
from tests.rules import Patches

_OF_OPERATORS = (
    admin_pb2.CreateTopicsResponse,
    admin_pb2.DeleteTopicsResponse,
    admin_pb2.AlterTopicsResponse,
    admin_pb2.ElectLeadersResponse,
    admin_pb2.AlterPartitionReassignmentsResponse,
    security_pb2.AlterUsersResponse,
    security_pb2.CreateAccessRulesResponse,
    security_pb2.DeleteAccessRulesResponse,
    security_pb2.AlterQuotasResponse,
)


def answered_before_it_is_committed() -> Patches:
    """An operator is told what the controller has decided, before a majority has it."""
    answer = Controller._answer

    def mutant(self: Controller, ticket: object, response: Any) -> None:
        if isinstance(response, _OF_OPERATORS):
            self._effects.append(ControllerAnswer(ticket, response))
        else:
            answer(self, ticket, response)

    return [(Controller, "_answer", mutant)]


def lost_race_is_answered_with_yes() -> Patches:
    """Who evolves a schema that somebody else has evolved meanwhile is told that it is done."""

    def mutant(request: admin_pb2.TopicAlteration, topic: Any, image: Any) -> Any:
        schemas = image.schemas.get(topic.topic_id)
        if request.HasField("schema") and schemas is not None and request.schema.version <= schemas.latest.version:
            return None
        return evolved_schemas(request, topic, image)

    return [(topics, "evolved_schemas", mutant)]


def rules_are_taken_away_in_words() -> Patches:
    """Who takes rules away is told which they were, and the last of them stays."""
    write = Security._write

    def mutant(self: Security, records: Iterable[Any]) -> None:
        found = list(records)
        write(self, found[:-1] if found and found[-1].access_rule.removed else found)

    return [(Security, "_write", mutant)]


def written_below_its_level() -> Patches:
    """Who creates users, rules and quotas is not asked whether the level of the cluster allows it, nor is what is
    written of them."""

    def mutant(self: Security, what: str) -> None: ...

    def unchecked(record: records_pb2.MetadataRecord, level: int) -> None: ...

    return [(Security, "_check_level", mutant), (ledger, "check_level_of", unchecked)]


def level_counts_before_the_disk_says_so() -> Patches:
    """A broker writes what came with a level, and an older version that is started on its disk is not warned."""

    def mutant(self: DataDirectory, level: int) -> None: ...

    return [(DataDirectory, "set_level", mutant)]
