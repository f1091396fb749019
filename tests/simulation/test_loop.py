"""The loop of many processes: whose error it is that nobody took."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.world.loop import Process, VirtualLoop


@pytest.fixture
def told() -> list[tuple[str, object]]:
    return []


def _loop(told: list[tuple[str, object]], *processes: Process) -> VirtualLoop:
    """Each process tells of its errors, and the machine of the others."""
    loop = VirtualLoop()

    def tells(name: str) -> Any:
        return lambda _, context: told.append((name, context.get("exception")))

    loop.set_exception_handler(tells("machine"))
    for process in processes:
        process.context().run(loop.set_exception_handler, tells(process.name))
    return loop


async def _fail(error: Exception) -> None:
    raise error


def test_an_error_is_told_to_the_process_whose_it_is_and_not_to_the_last_one_that_began(
    told: list[tuple[str, object]],
) -> None:
    one, other = Process("one"), Process("other")
    loop = _loop(told, one, other)
    error = ValueError("of one")
    tasks = [loop.spawn(one, _fail(error)), loop.spawn(other, asyncio.sleep(1.0))]
    loop.run_until_complete(tasks[1])
    other.context().run(tasks.clear)  # it goes while the other one runs
    assert told == [("one", error)]
    loop.close()


def test_a_future_that_failed_unseen_is_the_matter_of_who_made_it(told: list[tuple[str, object]]) -> None:
    broker, program = Process("broker"), Process("program")
    loop = _loop(told, broker)
    for process in (broker, program):
        future = process.context().run(loop.create_future)
        future.set_exception(ValueError(process.name))
        broker.context().run(lambda held: held.clear(), [future])
        del future
    assert [(name, str(error)) for name, error in told] == [("broker", "broker")], "a program may not look"
    loop.close()


def test_an_error_of_a_process_without_a_handler_is_the_machines(told: list[tuple[str, object]]) -> None:
    program = Process("program")
    loop = _loop(told)
    loop.spawn(program, _fail(ValueError("a bug")))
    loop.run_until_complete(loop.spawn(program, asyncio.sleep(1.0)))
    assert [name for name, _ in told] == ["machine"]
    loop.close()


def test_the_dead_tell_nothing(told: list[tuple[str, object]]) -> None:
    broker = Process("broker")
    loop = _loop(told, broker)
    future = broker.context().run(loop.create_future)
    future.set_exception(ValueError("late"))
    broker.dead = True
    del future
    assert told == []
    loop.close()
