"""The file `topic-id` of a log's directory. It names the log's partition, and is durable before the first record."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from minilog.partition_key import PartitionKey
from minilog_broker.storage.durable_file import parent, read_durable_file, write_durable_file
from minilog_broker.storage.errors import CorruptFile, DataDirectoryError
from minilog_broker.storage.files import FileSystem

FILE_NAME = "topic-id"


@dataclass(frozen=True, slots=True)
class TopicIdFile:
    """The content of the file. `topic_id` is in hexadecimal."""

    topic_id: str
    topic_name: str
    partition: int


def read_topic_id(files: FileSystem, directory: str) -> TopicIdFile | None:
    """The topic and partition of the log in `directory`. None if the file is missing. Raises CorruptFile."""
    path = f"{directory}/{FILE_NAME}"
    try:
        content = read_durable_file(files, path)
    except CorruptFile as error:
        raise CorruptFile(
            f"{error}. The log's partition is unknown: set {directory} aside, and the broker fetches its records again"
        ) from error
    if content is None:
        return None
    try:
        owner = msgspec.json.decode(content, type=TopicIdFile)
        bytes.fromhex(owner.topic_id)
    except ValueError as error:  # msgspec's errors are ValueErrors too
        raise CorruptFile(f"{path} does not name a topic id: {error}") from error
    return owner


def prepare_directory(files: FileSystem, directory: str, key: PartitionKey, topic_name: str, *, create: bool) -> None:
    """Check that `directory` exists and belongs to this partition. With `create`, make a missing directory, durably.

    If the directory has no `topic-id` file and no segment yet, write that file. Raises DataDirectoryError if the
    directory belongs to another partition, if it has segments but no `topic-id` file, or if it is missing and `create`
    is not set.
    """
    if create:
        files.make_dir(directory)
        files.fsync_dir(parent(directory))
    elif not files.exists(directory):
        raise DataDirectoryError(f"{directory} is missing, but a log was there before")
    wanted = TopicIdFile(key.topic_id.hex(), topic_name, key.partition)
    owner = read_topic_id(files, directory)
    if owner is None:
        if any(name.endswith(".log") for name in files.list(directory)):
            raise DataDirectoryError(
                f"{directory} has data but no file {FILE_NAME}, which names its partition: set {directory} aside, and "
                f"the broker fetches the records again"
            )
        write_durable_file(files, f"{directory}/{FILE_NAME}", msgspec.json.encode(wanted))
    elif (owner.topic_id, owner.partition) != (wanted.topic_id, wanted.partition):
        raise DataDirectoryError(
            f"{directory} has the log of partition {owner.partition} of topic id {owner.topic_id}, "
            f"not of partition {wanted.partition} of topic id {wanted.topic_id}"
        )
