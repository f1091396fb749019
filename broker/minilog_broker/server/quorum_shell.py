"""The shell around the quorum node: the metadata log with a disk thread of its own, its sessions, and this broker's image.

    node effects ──► metadata disk thread, vote file, sessions       committed_end_offset ──► replay ──► image ──► hooks

An error of the metadata log or of the vote file ends the process (REPLICATION.md, eligible leaders): what this broker
has promised to the quorum can no longer be told.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import msgspec
import structlog

from minilog.v1 import common_pb2, peer_pb2, peer_pb2_grpc, records_pb2
from minilog_broker.controller.image import ImageChanges, MetadataImage
from minilog_broker.quorum.effects import PersistVote, QuorumEffect, VoteState
from minilog_broker.quorum.node import QuorumNode
from minilog_broker.quorum.records import CLUSTER_METADATA_TOPIC_NAME, METADATA_KEY
from minilog_broker.replication import effects
from minilog_broker.server.channels import STREAM_ERRORS, open_channel, reason
from minilog_broker.server.config import BrokerOptions
from minilog_broker.server.disk import DiskCommand, DiskThread
from minilog_broker.server.streams import pump
from minilog_broker.server.timer import CoreTimer, now_ms
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.durable_file import read_durable_file, write_durable_file
from minilog_broker.storage.files import FileSystem
from minilog_broker.storage.log import Log
from minilog_broker.storage.settings import LogSettings

logger = structlog.get_logger()

VOTE_FILE = "quorum-vote"
