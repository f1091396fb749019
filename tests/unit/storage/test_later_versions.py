"""What a later version wrote is left as it is: not cut, not marked, not called damage (docs/spec/levels.md)."""

from __future__ import annotations

import msgspec
import pytest

from minilog.errors import CorruptMessage, UnsupportedVersion
from minilog.record_batch.header import decode_header
from minilog.v1 import records_pb2
from minilog.versions import VersionRange
from minilog_broker.storage.copy_check import check_copy
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.durable_file import write_durable_file
from minilog_broker.storage.markers import read_markers
from tests.rules import proves
from tests.unit.record_batch.batches import of_a_later_version, patched, sealed
from tests.unit.storage.logs import DIRECTORY, KEY, batch, fill, open_log
from tests.world.disk import MemoryDisk

pytestmark = proves("DK.2")

FIRST = f"{DIRECTORY}/{0:020d}.log"
LATER = of_a_later_version(batch(3), *KEY)


def with_three_batches(files: MemoryDisk, *behind: bytes) -> dict[str, bytes]:
    """A log that its process left without a word, with this behind its batches; all of its files."""
    log = open_log(files)
    fill(log, 3)
    log.write_checkpoint()
    files.damage(FIRST, 3 * 72, b"".join(behind))
    files.end_process()
    write = files.open(f"{DIRECTORY}/half.tmp", create=True)
    write.write([b"half"], 0)
    return every_file(files)


def every_file(files: MemoryDisk) -> dict[str, bytes]:
    return {name: files.content(f"{DIRECTORY}/{name}") for name in files.list(DIRECTORY)}


@pytest.mark.parametrize(
    "behind",
    [
        (LATER,),
        (LATER, batch(4)),
        (LATER, b"torn"),
        (sealed(patched(batch(3), 3, "B", ord("2")), *KEY),),
        (of_a_later_version(batch(3, payload=bytes(80)), *KEY)[:-8],),  # its payload is not all there
    ],
    ids=["last", "one that is known behind it", "a torn tail behind it", "another magic", "cut"],
)
def test_recovery_ends_and_changes_no_file(files: MemoryDisk, behind: tuple[bytes, ...]) -> None:
    before = with_three_batches(files, *behind)
    for _ in range(2):
        with pytest.raises(UnsupportedVersion, match=r"offset 3.*was written by a later version"):
            open_log(files)
        assert every_file(files) == before


def test_rot_that_looks_like_a_later_version_is_rot(files: MemoryDisk) -> None:
    with_three_batches(files, patched(batch(3), 31, "B", 0x80))
    assert open_log(files).log_end_offset == 3


def test_a_log_whose_index_vouches_for_it_says_so_where_it_is_read(files: MemoryDisk) -> None:
    log = open_log(files)
    fill(log, 3)
    log.close(clean=True)
    for position in (72, 3, 72 + 3):  # an attribute of the second batch; the magic of the first, and of the second
        whole = files.content(FIRST)
        at = position // 72
        later = LATER if position == 72 else sealed(patched(batch(at), 3, "B", ord("2")), *KEY)
        forged = patched(later, 8, "q", at)
        files.damage(FIRST, at * 72, sealed(forged, *KEY))
        log = open_log(files, unclean=False)
        with pytest.raises(UnsupportedVersion):
            list(log.replay(0))
        with pytest.raises(UnsupportedVersion):
            check_copy(log, *KEY, 0, 1 << 20)
        with pytest.raises(UnsupportedVersion):
            log.truncate_to(2)
        assert files.size(FIRST) == 3 * 72
        files.damage(FIRST, 0, whole)


def test_a_control_record_of_a_later_version_is_no_empty_one() -> None:
    content = records_pb2.ControlRecord().SerializeToString() + b"\xfa\x01\x02hi"
    framed = len(content).to_bytes(4, "little") + content
    control = sealed(patched(batch(0, payload=framed + bytes(-len(framed) % 8)), 28, "I", 32), *KEY)
    with pytest.raises(UnsupportedVersion, match="was written by a later version"):
        read_markers(control, decode_header(control))


def test_the_directory_of_a_cluster_at_another_level_is_refused_before_anything_is_written(
    files: MemoryDisk,
) -> None:
    first = DataDirectory.open(files, "/data", 1, None, process_id=7, levels=VersionRange(1, 2))
    first.set_cluster("cluster", [1])
    first.set_level(2)
    first.write_clean_stop(5)
    first.close()
    before = {name: files.content(f"/data/{name}") for name in ("broker.json", "clean-stop")}
    with pytest.raises(UnsupportedVersion, match=r"/data is at level 2.*later version.*supports 1.*supports level 2"):
        DataDirectory.open(files, "/data", 1, None, process_id=8, levels=VersionRange(1, 1))
    with pytest.raises(UnsupportedVersion, match="minilog cluster upgrade"):
        DataDirectory.open(files, "/data", 1, None, process_id=8, levels=VersionRange(3, 4))
    assert {name: files.content(f"/data/{name}") for name in before} == before
    again = DataDirectory.open(files, "/data", 1, None, process_id=8, levels=VersionRange(2, 3))
    assert (again.clean_stop_epoch, again.cluster_id) == (5, "cluster")


def test_the_level_is_read_whatever_else_stands_beside_it(files: MemoryDisk) -> None:
    files.make_dir("/data")
    write_durable_file(files, "/data/broker.json", msgspec.json.encode({"level": 9, "broker": {"id": [1]}}))
    with pytest.raises(UnsupportedVersion, match="level 9"):
        DataDirectory.open(files, "/data", 1, None, process_id=8)


def test_a_checksum_that_is_wrong_is_no_level(files: MemoryDisk) -> None:
    log = open_log(files)
    fill(log, 3)
    files.damage(FIRST, 72 + 31, b"\x80")
    with pytest.raises(CorruptMessage):
        list(log.replay(0))
