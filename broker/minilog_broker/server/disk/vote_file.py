"""The file `quorum-vote`: the last epoch that this voter knew, and its vote in it (V11). It is made with the directory.

A missing file is not a new one: a voter without its vote could vote twice in an epoch. A directory that belongs to a
cluster and has no vote file is refused. (So is one without a metadata log: quorum/cluster.py.)
"""

from __future__ import annotations

import msgspec

from minilog.errors import StorageError
from minilog_broker.quorum.quorum_effects import VoteState
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.durable_file import read_durable_file, write_durable_file
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.files import FileSystem
from minilog_broker.storage.log import Log

FILE_NAME = "quorum-vote"


def open_vote(files: FileSystem, directory: DataDirectory, metadata_log: Log) -> VoteState:
    """The vote of a former life. A new directory gets a new one. Raises StorageError where the file is missing and
    should be there, or where it cannot be read."""
    path = f"{directory.path}/{FILE_NAME}"
    try:
        stored = read_durable_file(files, path)
        if stored is not None:
            return msgspec.json.decode(stored, type=VoteState)
    except (CorruptFile, msgspec.DecodeError) as error:
        raise StorageError(f"the vote file {path} is damaged: {error}. {remedy(directory)}") from error
    except OSError as error:
        raise StorageError(
            f"the vote file {path} cannot be read: {error}. Repair the disk and start again. Else: {remedy(directory)}"
        ) from error
    if directory.cluster_id or metadata_log.log_end_offset:
        raise StorageError(
            f"the vote file {path} is missing, and {directory.path} belongs to a cluster: this broker may have voted, "
            f"and could vote twice. Bring back the last version of that file. Else: {remedy(directory)}"
        )
    vote = VoteState()
    write_vote(files, directory, vote)
    return vote


def write_vote(files: FileSystem, directory: DataDirectory, vote: VoteState) -> None:
    """Write the vote. It is durable on return, and so is the name of the file."""
    write_durable_file(files, f"{directory.path}/{FILE_NAME}", msgspec.json.encode(vote))


def remedy(directory: DataDirectory) -> str:
    """The remedy for a directory that cannot take part in the quorum under its former identity."""
    return (
        f"Set the data directory aside and start with an empty one. An observer fetches all again. If the broker is a "
        f"voter, run `minilog cluster replace-voter {directory.broker_id}` then"
    )
