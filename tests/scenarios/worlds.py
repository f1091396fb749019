"""The worlds by the names that files of scenarios give them. A world's module is loaded when it is used."""

from __future__ import annotations

import importlib

from tests.scenarios.text import ScenarioFile, TextError
from tests.scenarios.world import World

WORLDS = {
    "controller": "tests.scenarios.controller:ControllerWorld",
    "queues": "tests.scenarios.queues:QueueWorld",
    "groups": "tests.scenarios.groups:GroupWorld",
    "replication": "tests.scenarios.replication:ReplicationWorld",
    "transactions": "tests.scenarios.transactions:TransactionWorld",
}


def make_world(file: ScenarioFile) -> World:
    """A new world of the kind that the file names."""
    if file.world not in WORLDS:
        raise TextError(f"{file.path}:1: there is no world {file.world!r}: {', '.join(WORLDS)}")
    module, _, name = WORLDS[file.world].partition(":")
    world = getattr(importlib.import_module(module), name)()
    assert isinstance(world, World)
    return world
