"""Arrow batches of rows as messages that are ready to send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.columns.arrays import binary_array, int_array
from natsctl.spark.source.errors import PublishFailed
from natsctl.spark.source.publish.header_blocks import MSG_ID_HEADER, binary, constant, header_blocks, joined
from natsctl.spark.source.publish.ids import RowIds
from natsctl.spark.source.publish.json_text import json_objects, json_values
from natsctl.spark.source.publish.roles import Roles

SLICE_BYTES = 64 << 20
"""As much of a batch is made into messages at once; Arrow joins texts up to 2 GiB."""
_FIRST_LINE = b"NATS/1.0\r\n"
_ID = f"{MSG_ID_HEADER}: ".encode()
_NO_SUBJECT = r"^$|[\s\x00-\x1f]|^\.|\.\.|\.$|(?:^|\.)[*>](?:\.|$)"
_NO_TARGET = r"^\$(?:JS|SYS)\."
"""What is sent to the API's subjects would be obeyed, not stored."""


@dataclass(frozen=True)
class Messages:
    """Rows as messages, column by column; `ids` are null where a message has none."""

    subjects: pa.BinaryArray
    headers: pa.BinaryArray
    """Lines, without the first, the message id's and the last."""
    payloads: pa.BinaryArray
    ids: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.subjects)

    def without(self, ids: pa.BinaryArray) -> Messages:
        """The messages that have none of these ids."""
        kept = pc.invert(pc.is_in(self.ids, value_set=ids))
        parts = (self.subjects, self.headers, self.payloads, self.ids)
        return Messages(*(part.filter(kept) for part in parts))

    def frames(self, inbox: str, first_number: int) -> pa.BinaryArray:
        """What to send per message; acknowledgements come to `<inbox>.<number>`."""
        rows = len(self)
        if self.ids.null_count:
            ids = [joined(_ID, self.ids, b"\r\n").fill_null(constant(b""))]
            header_bytes = pc.add(pc.binary_length(ids[0]), _number(len(_FIRST_LINE) + 2))
        else:
            ids = [_ID, self.ids, b"\r\n"]
            header_bytes = pc.add(pc.binary_length(self.ids), _number(len(_FIRST_LINE) + len(_ID) + 4))
        header_bytes = pc.add(header_bytes, pc.binary_length(self.headers))
        payload_bytes = pc.binary_length(self.payloads)
        numbers = _text(int_array(range(first_number, first_number + rows)))
        target = [b" ", self.subjects, f" {inbox}.".encode(), numbers, b" "]
        sizes = [_text(header_bytes), b" ", _text(pc.add(header_bytes, payload_bytes)), b"\r\n" + _FIRST_LINE]
        framed = joined(b"HPUB", *target, *sizes, self.headers, *ids, b"\r\n", self.payloads, b"\r\n")
        bare = pc.equal(header_bytes, _number(len(_FIRST_LINE) + 2))
        if not self.ids.null_count or not pc.any(bare).as_py():
            return framed
        plain = joined(b"PUB", *target, _text(payload_bytes), b"\r\n", self.payloads, b"\r\n")
        return pc.if_else(bare, plain, framed)


class MessageMaker:
    """Makes messages of one partition's rows."""

    def __init__(self, roles: Roles, ids: RowIds | None, expected_stream: str, max_bytes: int) -> None:
        """`ids` give rows an id that bring none; `max_bytes` is what the server takes of headers and payload."""
        self._roles = roles
        self._ids = ids
        self._expected = f"Nats-Expected-Stream: {expected_stream}\r\n".encode() if expected_stream else b""
        self._max_bytes = max_bytes

    def messages(self, batch: pa.RecordBatch) -> Iterator[Messages]:
        """The messages of a batch in its order; raises PublishFailed for a row that can be none."""
        rows = max(1, batch.num_rows * SLICE_BYTES // max(batch.nbytes, SLICE_BYTES))
        for start in range(0, batch.num_rows, rows):
            yield self._made(batch.slice(start, rows))

    def _made(self, batch: pa.RecordBatch) -> Messages:
        subjects = self._subjects(batch)
        payloads = self._payloads(batch)
        headers, own_ids = self._headers(batch)
        if self._roles.msg_id:
            column = batch.column(self._roles.msg_id)
            given = binary(column.cast(pa.string()))
            own_ids = given if own_ids is None else pc.coalesce(given, own_ids)
        ids = self._all_ids(own_ids, lambda: joined(subjects, b"\n", headers, b"\n", payloads), batch.num_rows)
        self._check_sizes(subjects, headers, payloads, ids)
        return Messages(subjects, headers, payloads, ids)

    def _subjects(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        if self._roles.fixed_subject:
            column = binary_array([self._roles.fixed_subject.encode()]).cast(pa.string())
        else:
            column = batch.column(self._roles.subject).cast(pa.string())
        distinct = column.unique()
        if distinct.null_count:
            raise PublishFailed("a row has no subject: its column is null")
        for pattern, fault in ((_NO_SUBJECT, "is no subject to publish to"), (_NO_TARGET, "belongs to the server")):
            wrong = distinct.filter(pc.match_substring_regex(distinct, pattern))
            if len(wrong):
                raise PublishFailed(f"{wrong[0].as_py()!r} {fault}")
        subjects = binary(column)
        return pa.repeat(subjects[0], batch.num_rows) if self._roles.fixed_subject else subjects

    def _payloads(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """A value that is null is an empty payload."""
        if self._roles.fields:
            return binary_array(json_objects(batch, self._roles.fields))
        column = batch.column(self._roles.value)
        if self._roles.json_value:
            return binary_array([text.encode() for text in json_values(column)])
        return binary(column).fill_null(constant(b""))

    def _headers(self, batch: pa.RecordBatch) -> tuple[pa.BinaryArray, pa.BinaryArray | None]:
        blocks: list[pa.BinaryArray | bytes] = [self._expected]
        for column, header in self._roles.expected:
            blocks.append(joined(f"{header}: ".encode(), _text(batch.column(column)), b"\r\n").fill_null(constant(b"")))
        ids = None
        if self._roles.headers:
            text, ids = header_blocks(batch.column(self._roles.headers))
            blocks.append(text)
        if len(blocks) == 1:
            return pa.repeat(constant(self._expected), batch.num_rows), ids
        return joined(*blocks), ids

    def _all_ids(self, own: pa.BinaryArray | None, contents: Callable[[], pa.BinaryArray], rows: int) -> pa.BinaryArray:
        """The rows' own ids where they have one, and made ones elsewhere."""
        if own is not None and pc.any(pc.match_substring_regex(own, r"[\r\n]|^$")).as_py():
            raise PublishFailed("a message id is empty or has a line end")
        if own is not None and not own.null_count:
            return own
        made = self._ids.of(rows, contents) if self._ids else pa.nulls(rows, pa.binary())
        return made if own is None else pc.coalesce(own, made)

    def _check_sizes(self, subjects: pa.BinaryArray, *parts: pa.BinaryArray) -> None:
        """Tell of a message that is too large before the server ends the connection over it."""
        size = int_array([len(_FIRST_LINE) + len(_ID) + 4])[0]
        for part in parts:
            size = pc.add(size, pc.binary_length(part).fill_null(_number(0)).cast(pa.int64()))
        if self._max_bytes and (largest := pc.max(size).as_py() or 0) > self._max_bytes:
            subject = subjects[size.to_pylist().index(largest)].as_py().decode()
            raise PublishFailed(f"{subject}: a message of {largest} bytes; the server takes {self._max_bytes} at most")


def _text(numbers: pa.Array) -> pa.BinaryArray:
    return numbers.cast(pa.string()).cast(pa.binary())


def _number(number: int) -> pa.Int32Scalar:
    return int_array([number]).cast(pa.int32())[0]
