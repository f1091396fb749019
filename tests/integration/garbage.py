"""What a broken or hostile peer sends: bytes that are no HTTP/2, frames that are no gRPC, messages without meaning."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import random
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

import minilog.v1
from minilog.stream_messages import STREAM_METHODS, StreamMessage

if TYPE_CHECKING:
    from google._upb import _message

AnyField: TypeAlias = "FieldDescriptor | _message.FieldDescriptor"

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EMPTY_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SERVICES = [
    service
    for each in pkgutil.iter_modules(minilog.v1.__path__)
    if each.name.endswith("_pb2")
    for service in importlib.import_module(f"minilog.v1.{each.name}").DESCRIPTOR.services_by_name.values()
]
"""All there are, whatever file they are in."""
# No small ones but 0: with a real broker's id and epoch a message would be that broker's, and be obeyed.
_NUMBERS = (0, -1, 1000, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
_DEEPEST = 4
_CALL_S = 2.0


def raw_bytes(chance: random.Random) -> bytes:
    """Anything: noise, or the beginning of HTTP/2 with noise behind it."""
    noise = chance.randbytes(chance.randrange(1, 4000))
    return chance.choice((b"", HTTP2_PREFACE, HTTP2_PREFACE + EMPTY_SETTINGS)) + noise


def http2_frames(chance: random.Random) -> bytes:
    """Frames with lengths that fit, and types, flags, streams and contents that mostly do not."""
    frames = HTTP2_PREFACE + EMPTY_SETTINGS
    for _ in range(chance.randrange(1, 40)):
        content = chance.randbytes(chance.randrange(0, 200))
        stream = chance.choice((0, 1, 1, 3, 2, 2**31 - 1))
        frames += len(content).to_bytes(3, "big") + bytes([chance.randrange(0, 12), chance.randrange(256)])
        frames += stream.to_bytes(4, "big") + content
    return frames


def send_raw(address: tuple[str, int], content: bytes) -> None:
    """Send, read what comes for a moment, and go; a refusal or a reset is right."""
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=1.0) as connection:
        connection.settimeout(0.05)
        connection.sendall(content)
        with contextlib.suppress(TimeoutError):
            while connection.recv(65536):
                pass


def methods() -> list[MethodDescriptor]:
    """Every call that a broker answers."""
    return [method for service in SERVICES for method in service.methods]


def path_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def random_message(message: Message, chance: random.Random, depth: int = 0) -> Message:
    """Fill some of the fields: small and extreme numbers, texts and bytes of no meaning."""
    for field in message.DESCRIPTOR.fields:
        if chance.random() < 0.6 and depth < _DEEPEST:
            _fill(message, field, chance, depth)
    return message


def _fill(message: Message, field: AnyField, chance: random.Random, depth: int) -> None:
    repeated: bool = field.is_repeated
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return
    if field.message_type is not None:
        if repeated:
            for _ in range(chance.randrange(3)):
                random_message(getattr(message, field.name).add(), chance, depth + 1)
        else:
            random_message(getattr(message, field.name), chance, depth + 1)
            getattr(message, field.name).SetInParent()
    elif repeated:
        getattr(message, field.name).extend([_value(field, chance) for _ in range(chance.randrange(3))])
    else:
        setattr(message, field.name, _value(field, chance))


def _value(field: AnyField, chance: random.Random) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return chance.randbytes(chance.choice((0, 1, 16, 16, 16, 100)))
        case FieldDescriptor.CPPTYPE_STRING:
            return chance.choice(("", "a", "__cluster_metadata", "../../etc", "x" * 300, "\x00", "min.insync.replicas"))
        case FieldDescriptor.CPPTYPE_BOOL:
            return chance.random() < 0.5
        case FieldDescriptor.CPPTYPE_ENUM:
            assert field.enum_type is not None
            return chance.choice([value.number for value in field.enum_type.values])
        case FieldDescriptor.CPPTYPE_INT32:
            return max(-(2**31), min(2**31 - 1, chance.choice(_NUMBERS)))
        case FieldDescriptor.CPPTYPE_UINT32 | FieldDescriptor.CPPTYPE_UINT64:
            return chance.choice((0, 1, 2**32 - 1))
        case _:
            return chance.choice(_NUMBERS)


def request_of(method: MethodDescriptor, chance: random.Random) -> bytes:
    """A senseless request; that of a long-lived stream in a frame, with a payload of noise for each that it names."""
    message = random_message(GetMessageClass(method.input_type)(), chance)
    stream = STREAM_METHODS.get(path_of(method))
    if stream is None:
        return message.SerializeToString()
    entries = getattr(message, "entries", ())
    return b"".join(
        stream.request.parts(StreamMessage(message, [chance.randbytes(chance.randrange(200)) for _ in entries]))
    )


def call(channel: grpc.Channel, method: MethodDescriptor, requests: list[bytes], timeout_s: float = _CALL_S) -> str:
    """Make the call with these bytes; how it ended: empty, or the words of the error."""
    streams = method.client_streaming, method.server_streaming
    kinds: dict[tuple[bool, bool], Callable[..., Any]] = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }
    stub = kinds[streams](path_of(method), request_serializer=None, response_deserializer=None)
    given = iter(requests) if method.client_streaming else requests[0]
    try:
        answer = stub(given, timeout=timeout_s)
        if method.server_streaming:
            for _ in answer:
                pass
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"
    return ""
