"""Freed buffers stay with the process; where they cannot, all goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from minilog.malloc import keep_freed_memory

_FAULTS = """
import resource, sys
from minilog.malloc import keep_freed_memory
assert sys.argv[1] == "as it comes" or keep_freed_memory()
source = b"x" * (4 << 20)
copies = [bytearray(source) for _ in range(3)]
del copies
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    copies = [bytearray(source), bytearray(source)]
    del copies
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(how: str) -> int:
    ran = subprocess.run([sys.executable, "-c", _FAULTS, how], check=True, capture_output=True, text=True)
    return int(ran.stdout)


def test_buffers_are_not_faulted_in_again() -> None:
    assert _faults("kept") < 100  # 4 MiB are 1,024 pages, or two huge ones


class _OtherLibrary:
    """Of a platform that has no mallopt."""


class _OtherMallopt:
    """Of a C library that is not glibc."""

    def mallopt(self, name: int, value: int) -> int:
        raise AssertionError(f"it is not to be asked: {name}={value}")


def _no_library() -> object:
    raise OSError("there is nothing to open")


@pytest.mark.parametrize("c_library", [_OtherLibrary, _OtherMallopt, _no_library])
def test_another_c_library_is_left_as_it_is(c_library: type) -> None:
    assert not keep_freed_memory(c_library)
