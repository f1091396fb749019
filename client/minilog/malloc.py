"""Freed buffers stay with the process, where its C library is glibc.

glibc maps each buffer above 128 KiB anew and gives it back when it is freed. The kernel then clears each page of it,
and takes a fault for each: of a batch of 1 MiB, 256 of them, at each copy on its way. That costs more than the copy.
Processes that move batches keep what they freed instead: up to KEPT_BYTES on top of each of malloc's heaps (the
main one, and one of at most 64 MiB for each thread that allocates while another does). (glibc raises the threshold by
itself, but only up to 32 MiB and not for what other threads free.)
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from typing import Any

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # of malloc.h
LARGEST_KEPT_BYTES = 32 * 1024 * 1024  # glibc up to 2.34 takes no more for M_MMAP_THRESHOLD
KEPT_BYTES = 64 * 1024 * 1024  # more than that on top of the heap goes back to the kernel
GROWTH_BYTES = 16 * 1024 * 1024  # the heap grows by so much at once
_log = logging.getLogger(__name__)


def _loaded_library() -> Any:
    return ctypes.CDLL(None)


def keep_freed_memory(c_library: Callable[[], Any] = _loaded_library) -> bool:
    """Let this process keep the buffers that it frees. False where that cannot be said to its C library: then it is
    slower, and all is well."""
    try:
        library = c_library()
        mallopt = library.mallopt
        _ = library.gnu_get_libc_version  # another library's mallopt, such as musl's, promises nothing
    except (AttributeError, OSError, TypeError) as error:
        _log.debug("malloc is left as it is: %s", error)
        return False
    settings = (
        (_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES),
        (_M_TRIM_THRESHOLD, KEPT_BYTES),
        (_M_TOP_PAD, GROWTH_BYTES),
    )
    taken = [mallopt(name, value) == 1 for name, value in settings]
    return all(taken)
