"""The columns in the payloads of one version of a schema: those of the schema, or some of them, and those that follow:
time stamps, record headers, and offset deltas (record_batch/gaps.py). Pure."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from minilog.errors import CorruptMessage
from minilog.record_batch.header import Attributes, BatchHeader
from minilog.record_batch.schema import HEADERS, OFFSET_DELTA, TIMESTAMP
from minilog.typed.schema.fields import Field, arrow_field
from minilog.typed.schema.projection import shape_of
from minilog.v1 import typed_pb2

_MAX_FORMS = 256  # of one version: readers ask for few different ones
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Extras:
    """The columns that follow those of the schema, in this order."""

    timestamps: bool
    headers: bool
    offset_deltas: bool = False

    @property
    def arrow_fields(self) -> list[pa.Field]:
        return [
            *([pa.field("timestamp", TIMESTAMP)] if self.timestamps else []),
            *([pa.field("headers", HEADERS)] if self.headers else []),
            *([OFFSET_DELTA] if self.offset_deltas else []),
        ]


@dataclass(frozen=True, slots=True)
class PayloadForm:
    """The columns of a payload: those of one version of the schema, perhaps only some, and what follows them."""

    columns: tuple[Field, ...]
    extras: Extras
    arrow_schema: pa.Schema
    shape: tuple[int, int]
    """Nodes and buffers."""


class PayloadForms:
    """Of one version of a schema, each made once."""

    def __init__(self, fields: tuple[Field, ...], version: int) -> None:
        self._fields = fields
        self._version = version
        self._places = {field.id: place for place, field in enumerate(fields)}
        self._forms: dict[tuple[tuple[int, ...] | None, Extras], PayloadForm] = {}

    def form(self, extension: typed_pb2.TypedBatch, header: BatchHeader) -> PayloadForm:
        """Of a batch. Raises CorruptMessage where it is projected to columns that this version does not have."""
        chosen = tuple(extension.field_ids) if header.attributes & Attributes.PROJECTED else None
        has_headers = bool(header.attributes & Attributes.HAS_HEADERS)
        return self.form_of(chosen, Extras(extension.has_timestamps, has_headers, header.has_gaps))

    def form_of(self, field_ids: tuple[int, ...] | None, extras: Extras) -> PayloadForm:
        """With these columns, ascending by their places; None: all."""
        key = (field_ids, extras)
        form = self._forms.get(key)
        if form is None:
            if len(self._forms) >= _MAX_FORMS:
                self._forms.clear()
            form = self._forms[key] = self._made(*key)
        return form

    def places(self, field_ids: tuple[int, ...]) -> tuple[int, ...]:
        """Of these columns, among those of the version. Raises CorruptMessage."""
        places = [self._places.get(field_id, -1) for field_id in field_ids]
        if places != sorted(set(places)) or -1 in places:
            raise CorruptMessage(
                f"a projected batch has {len(field_ids)} columns, {list(field_ids[:_SHOWN])} and so on, which version "
                f"{self._version} of the schema does not have in this order"
            )
        return tuple(places)

    def _made(self, field_ids: tuple[int, ...] | None, extras: Extras) -> PayloadForm:
        fields = self._fields
        columns = fields if field_ids is None else tuple(fields[place] for place in self.places(field_ids))
        arrow = pa.schema([*map(arrow_field, columns), *extras.arrow_fields])
        shapes = [shape_of(column.type) for column in arrow]
        shape = sum(nodes for nodes, _ in shapes), sum(buffers for _, buffers in shapes)
        return PayloadForm(columns, extras, arrow, shape)
