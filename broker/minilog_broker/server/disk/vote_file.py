"""The file `quorum-vote`: the last epoch this voter knew and whom it voted for in it (V11). Made with the directory.

What is missing is not new: a voter that forgot its vote could vote twice in an epoch. A directory that belongs to a
cluster and has no vote file is refused. (One that has no metadata log is, too: quorum/cluster.py.)
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
    """The vote of a former life; a new directory's is made. Raises StorageError where there is none and should be one,
    or where it cannot be read."""
    path = f"{directory.path}/{FILE_NAME}"
    try:
        stored = read_durable_file(files, path)
        if stored is not None:
            return msgspec.json.decode(stored, type=VoteState)
    except (CorruptFile, msgspec.DecodeError) as error:
        raise StorageError(f"the vote file {path} is damaged: {error}. {remedy(directory)}") from error
    except OSError as error:
        raise StorageError(
            f"the vote file {path} cannot be read: {error}. Repair that and start again. Else: {remedy(directory)}"
        ) from error
    if directory.cluster_id or metadata_log.log_end_offset:
        raise StorageError(
            f"the vote file {path} is missing, and {directory.path} belongs to a cluster: this broker may have voted, "
            f"and would vote twice. Bring that file back as it was last. Else: {remedy(directory)}"
        )
    vote = VoteState()
    write_vote(files, directory, vote)
    return vote


def write_vote(files: FileSystem, directory: DataDirectory, vote: VoteState) -> None:
    """Durable on return, and so is its name."""
    write_durable_file(files, f"{directory.path}/{FILE_NAME}", msgspec.json.encode(vote))


def remedy(directory: DataDirectory) -> str:
    """What to do with a directory that cannot take part in the quorum as what it was."""
    return (
        f"Set the data directory aside and start with an empty one: an observer fetches all again; a voter is then to "
        f"be replaced by `minilog cluster replace-voter {directory.broker_id}`"
    )
