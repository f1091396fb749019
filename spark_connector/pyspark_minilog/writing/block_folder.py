"""The folder of a transaction block: its writes hand their winners over to the block.

Spark runs the commit of a write in a Python process of its own, on the driver's machine. The block runs in the user's
process. They share a folder of mode 700 in the temporary folder of the block's process:

    file        made by                              content
    block       the block, at its begin              the attempt that all writes take part in
    begun-N     write N, before it reads `block`     nothing
    done-N      write N, at Spark's commit           its hand-over. The file appears as a whole

At its end the block first removes `block`, and then counts the files. A write that begins meanwhile has made its file
before, and is counted, or does not find `block`, and is refused.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile

from pyspark_minilog.errors import InvalidOption, refused
from pyspark_minilog.writing.block_protocol import FUNCTION, MAX_WRITES, BegunBlock, HandOver

OPTION = "transaction"
_PREFIX = "minilog-transaction-"
_BLOCK, _BEGUN, _DONE = "block", "begun-", "done-"


class BlockFolder:
    """`create` is for the block, and `BlockFolder(path)` for a write."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._folder = pathlib.Path(path)

    @classmethod
    def create(cls) -> BlockFolder:
        """A new folder, which only this user can open."""
        return cls(tempfile.mkdtemp(prefix=_PREFIX))

    # -- the block

    def open(self, block: BegunBlock) -> None:
        """From now on writes may begin."""
        self._write(_BLOCK, block.to_json())

    def close(self) -> tuple[int, dict[int, HandOver]]:
        """From now on no write begins. The number of writes that have begun, and the hand-overs by their numbers."""
        self._folder.joinpath(_BLOCK).unlink(missing_ok=True)
        begun = sum(1 for _ in self._folder.glob(f"{_BEGUN}*"))
        done = {number: self._folder / f"{_DONE}{number}" for number in range(begun)}
        return begun, {number: HandOver.from_json(file.read_text()) for number, file in done.items() if file.exists()}

    def remove(self) -> None:
        """Remove the folder. Writes that still run find nothing any more."""
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- a write

    def begin(self) -> tuple[int, BegunBlock]:
        """The number of a new write, and the block. Raises InvalidOption if the block has ended, or is elsewhere."""
        try:
            number = self._next_number()
            return number, BegunBlock.from_json(self._folder.joinpath(_BLOCK).read_text())
        except OSError as error:
            raise refused(
                OPTION,
                self.path,
                f"no block of {FUNCTION} is open there ({error.strerror}). Its block has ended, or runs on another "
                "machine or as another user than Spark's driver, as with a client of Spark Connect. Write inside of "
                "the block, and let the block run on the driver, for example in foreachBatch",
            ) from None

    def hand_over(self, number: int, result: HandOver) -> None:
        """Give the result of a write to the block. Raises InvalidOption if the block has ended."""
        try:
            self._write(f"{_DONE}{number}", result.to_json())
        except OSError as error:
            raise refused(
                OPTION,
                self.path,
                f"the block of {FUNCTION} has ended while this write ran ({error.strerror}). End the write inside of "
                "the block",
            ) from None

    def take_back(self, number: int) -> None:
        """Take the result of a write back, because Spark gives the write up."""
        with contextlib.suppress(OSError):
            self._folder.joinpath(f"{_DONE}{number}").unlink(missing_ok=True)

    def _next_number(self) -> int:
        """Several threads may write in one block."""
        for number in range(MAX_WRITES):
            try:
                self._folder.joinpath(f"{_BEGUN}{number}").touch(mode=0o600, exist_ok=False)
            except FileExistsError:
                continue
            return number
        raise InvalidOption(f"a block of {FUNCTION} has at most {MAX_WRITES} writes: make fewer writes, or more blocks")

    def _write(self, name: str, text: str) -> None:
        """Write a file as a whole: it is there with all of its content, or not at all."""
        descriptor, written = tempfile.mkstemp(dir=self._folder, prefix=".")
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.replace(written, self._folder / name)
