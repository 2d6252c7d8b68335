"""Arrow batches of rows as messages that are ready to send."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.columns.arrays import binary_array, int_array
from natsctl.spark.source.errors import PublishError
from natsctl.spark.source.publish.header_blocks import binary, constant, header_blocks, joined
from natsctl.spark.source.publish.ids import RowIds
from natsctl.spark.source.publish.json_text import json_objects, json_values
from natsctl.spark.source.publish.messages import FIRST_LINE, ID, Messages
from natsctl.spark.source.publish.roles import Roles

SLICE_BYTES = 64 << 20
"""As much of a batch is made into messages at once; Arrow joins texts up to 2 GiB."""
_NO_SUBJECT = r"^$|[\s\x0b]|^\.|\.\.|\.$|(?:^|\.)[*>](?:\.|$)"
"""Texts that no server stores, or takes for the end of the subject; other control characters are letters to it."""
_NO_TARGET = r"^\$(?:JS|SYS)\."
"""Messages to the API's subjects would be obeyed, not stored."""


class MessageMaker:
    """Makes messages of one partition's rows."""

    def __init__(self, roles: Roles, ids: RowIds | None, stream: str, max_bytes: int) -> None:
        """`ids` give rows an id that bring none; `stream` is the only one that may take them, empty: any.

        `max_bytes` is what the server takes of headers and payload.
        """
        self._roles = roles
        self._ids = ids
        self._expected = f"Nats-Expected-Stream: {stream}\r\n".encode() if stream else b""
        self._taken = ""
        self._max_bytes = max_bytes

    def taken(self, patterns: Sequence[str]) -> None:
        """Learn to which subjects the stream listens."""
        self._taken = subjects_regex(patterns)

    def messages(self, batch: pa.RecordBatch) -> Iterator[Messages]:
        """Yield the messages of a batch in its order; raises PublishError for a row that can be none."""
        rows = max(1, batch.num_rows * SLICE_BYTES // max(batch.nbytes, SLICE_BYTES))
        for start in range(0, batch.num_rows, rows):
            yield self._made(batch.slice(start, rows))

    def _made(self, batch: pa.RecordBatch) -> Messages:
        subjects, covered = self._subjects(batch)
        payloads = self._payloads(batch)
        headers, own_ids = self._headers(batch)
        if self._roles.msg_id:
            column = batch.column(self._roles.msg_id)
            given = binary(column.cast(pa.string()))
            own_ids = given if own_ids is None else pc.coalesce(given, own_ids)
        content = (subjects, b"\n", headers, b"\n", payloads)
        ids = self._all_ids(own_ids, lambda: joined(*self._origin(batch), *content), batch.num_rows)
        self._check_sizes(subjects, headers, payloads, ids)
        repeatable = not self._roles.expected
        made = None
        if self._ids and self._ids.of_content:
            made = pc.is_valid(ids) if own_ids is None else pc.is_null(own_ids)
        return Messages(subjects, headers, payloads, ids, self._expected, covered, repeatable, made)

    def _origin(self, batch: pa.RecordBatch) -> Iterator[pa.BinaryArray | bytes]:
        """Yield where each row was read from, as far as the frame still has it."""
        for name in self._roles.origin:
            yield batch.column(name).cast(pa.string()).cast(pa.binary()).fill_null(constant(b""))
            yield b"\n"

    def _subjects(self, batch: pa.RecordBatch) -> tuple[pa.BinaryArray, bool]:
        """Return the subjects, and whether the stream is known to listen to all of them."""
        if self._roles.fixed_subject:
            column = binary_array([self._roles.fixed_subject.encode()]).cast(pa.string())
        else:
            column = batch.column(self._roles.subject).cast(pa.string())
        distinct = column.unique()
        if distinct.null_count:
            raise PublishError("a row has no subject: its column is null")
        for pattern, fault in ((_NO_SUBJECT, "is no subject to publish to"), (_NO_TARGET, "belongs to the server")):
            wrong = distinct.filter(pc.match_substring_regex(distinct, pattern))
            if len(wrong):
                raise PublishError(f"{wrong[0].as_py()!r} {fault}")
        covered = bool(self._taken) and pc.all(pc.match_substring_regex(distinct, self._taken)).as_py()
        subjects = binary(column)
        return (pa.repeat(subjects[0], batch.num_rows) if self._roles.fixed_subject else subjects), covered

    def _payloads(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """Return the payloads: a value that is null is an empty one."""
        if self._roles.fields:
            return binary_array(json_objects(batch, self._roles.fields))
        column = batch.column(self._roles.value)
        if self._roles.json_value:
            return binary_array([text.encode() for text in json_values(column)])
        return binary(column).fill_null(constant(b""))

    def _headers(self, batch: pa.RecordBatch) -> tuple[pa.BinaryArray, pa.BinaryArray | None]:
        blocks: list[pa.BinaryArray] = []
        for column, header in self._roles.expected:
            numbers = batch.column(column).cast(pa.string()).cast(pa.binary())
            blocks.append(joined(f"{header}: ".encode(), numbers, b"\r\n").fill_null(constant(b"")))
        ids = None
        if self._roles.headers:
            text, ids = header_blocks(batch.column(self._roles.headers))
            blocks.append(text)
        if not blocks:
            return pa.repeat(constant(b""), batch.num_rows), ids
        return (joined(*blocks) if len(blocks) > 1 else blocks[0]), ids

    def _all_ids(self, own: pa.BinaryArray | None, contents: Callable[[], pa.BinaryArray], rows: int) -> pa.BinaryArray:
        """Return the rows' own ids where they have one, and made ones elsewhere."""
        if own is not None and pc.any(pc.match_substring_regex(own, r"[\r\n]|^$")).as_py():
            raise PublishError("a message id is empty or has a line end")
        if own is not None and not own.null_count:
            return own
        made = self._ids.of(rows, contents) if self._ids else pa.nulls(rows, pa.binary())
        return made if own is None else pc.coalesce(own, made)

    def _check_sizes(self, subjects: pa.BinaryArray, *parts: pa.BinaryArray) -> None:
        """Raise PublishError for a message that is too large, before the server ends the connection over it."""
        size = int_array([len(FIRST_LINE) + len(ID) + 4 + len(self._expected)])[0]
        for part in parts:
            size = pc.add(size, pc.binary_length(part).fill_null(_nothing()).cast(pa.int64()))
        if self._max_bytes and (largest := pc.max(size).as_py() or 0) > self._max_bytes:
            subject = subjects[size.to_pylist().index(largest)].as_py().decode()
            raise PublishError(f"{subject}: a message of {largest} bytes; the server takes {self._max_bytes} at most")


def subjects_regex(patterns: Sequence[str]) -> str:
    """Return a regular expression for the subjects that a stream listens to; empty where it listens to none."""
    tokens = {"*": r"[^.]+", ">": r".+"}
    ways = [r"\.".join(tokens.get(token) or re.escape(token) for token in pattern.split(".")) for pattern in patterns]
    return f"^(?:{'|'.join(ways)})$" if ways else ""


def _nothing() -> pa.Int32Scalar:
    return int_array([0]).cast(pa.int32())[0]
