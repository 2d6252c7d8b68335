"""JSON lines with the columns of an export, read as Arrow batches and made of messages.

Only what `stream export` writes is read here, and what means the same: an object as `value`, rows without `seq`. Any
other file raises ValueError, and Spark reads it or reports the fault.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from natsctl.spark.files.file_formats import is_gzip
from natsctl.spark.source.arrays import binary_array, int_array

if TYPE_CHECKING:
    from natsctl.spark.files.direct_import import ImportScan

_READ_BYTES: Final = 1 << 20
"""Bytes of lines that are parsed at once, and the rest of the last line."""
_KEPT_BYTES: Final = 256 << 20
"""Rows that are kept in memory between the two readings of an import; larger files are parsed twice."""


class _HeaderLine(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    key: str
    value: str | None = None
    value_base64: str | None = None


class _MessageFields(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    stream: str | None = None
    seq: int | None = None
    subject: str | None = None
    timestamp: str | None = None
    headers: list[_HeaderLine] | None = None
    value_base64: str | None = None


class _TextLine(_MessageFields, gc=False):
    value: str | None = None


class _RawLine(_MessageFields, gc=False):
    value: msgspec.Raw = msgspec.Raw(b"null")


_texts, _raws = msgspec.json.Decoder(_TextLine), msgspec.json.Decoder(_RawLine)
_text = msgspec.json.Decoder(str)


class JsonLines:
    """Files of JSON lines, read in the order of their names; all methods raise ValueError for other contents."""

    def __init__(self, paths: Sequence[Path], max_messages: int, max_bytes: int, *, has_subject: bool) -> None:
        """Read these files; with `has_subject` each line needs a subject."""
        self._paths, self._has_subject = paths, has_subject
        self._max_messages, self._max_bytes = max_messages, max_bytes
        self._kept: list[pa.RecordBatch] | None = None

    def scan(self, scan: ImportScan) -> None:
        messages, has_values, size = 0, False, 0
        kept = list[pa.RecordBatch]()
        for lines in self._lines():
            batch = self._batch(lines)
            messages += batch.num_rows
            if messages > self._max_messages:
                raise ValueError("too many messages")
            has_values = has_values or any(_has_value(line) for line in lines)
            scan.add(batch)
            scan.add_payloads(batch.column("value"))
            size += batch.nbytes
            if size <= _KEPT_BYTES:
                kept.append(batch)
            else:
                kept.clear()
        self._kept = kept if size <= _KEPT_BYTES else None
        if messages and not has_values:
            raise ValueError("no column value")

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all messages, at most so many rows at once."""
        for batch in self._kept if self._kept is not None else map(self._batch, self._lines()):
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)

    def _lines(self) -> Iterator[Sequence[_TextLine] | Sequence[_RawLine]]:
        size = 0
        for path in self._paths:
            with gzip.open(path) if is_gzip(path.name) else path.open("rb") as file:
                while text := file.read(_READ_BYTES):
                    text += file.readline()
                    size += len(text)
                    if size > self._max_bytes:
                        raise ValueError("too many bytes")
                    yield _parsed(text)

    def _batch(self, lines: Sequence[_TextLine] | Sequence[_RawLine]) -> pa.RecordBatch:
        if self._has_subject and any(line.subject is None for line in lines):
            raise ValueError("a line has no subject")
        columns = {
            "stream": _all_or_none([line.stream for line in lines]),
            "seq": _sequences([line.seq for line in lines]),
            "subject": binary_array([(line.subject or "").encode() for line in lines]).cast(pa.string()),
            "headers": _headers([line.headers or () for line in lines]),
            "value": binary_array([_payload(line) for line in lines]),
        }
        return pa.RecordBatch.from_arrays([*columns.values()], [*columns])


def message_line(
    place: tuple[str, int, str, str], headers: Sequence[dict[str, Any]] | None, payload: bytes
) -> msgspec.Struct:
    """Return the line of a message; `place` is its stream, sequence, subject and time.

    Bytes that are not UTF-8 are in base64.
    """
    value, encoded = _text_or_base64(payload)
    pairs = None if headers is None else [_HeaderLine(pair["key"], *_text_or_base64(pair["value"])) for pair in headers]
    return _TextLine(*place, headers=pairs, value_base64=encoded, value=value)


def _text_or_base64(content: bytes) -> tuple[str | None, str | None]:
    try:
        return content.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(content).decode()


def _parsed(text: bytes) -> Sequence[_TextLine] | Sequence[_RawLine]:
    try:
        return _texts.decode_lines(text)
    except msgspec.ValidationError:  # such as an object as value
        text.decode()  # what msgspec keeps as it is spelled has to be UTF-8 too
        return _raws.decode_lines(text)


def _has_value(line: _TextLine | _RawLine) -> bool:
    value = line.value
    has_text = bytes(value) != b"null" if isinstance(value, msgspec.Raw) else value is not None
    return has_text or line.value_base64 is not None


def _payload(line: _TextLine | _RawLine) -> bytes:
    value = line.value
    if isinstance(value, msgspec.Raw):
        spelled = bytes(value)
        if spelled != b"null":
            return _text.decode(spelled).encode() if spelled.startswith(b'"') else spelled
    elif value is not None:
        return value.encode()
    return _decoded(line.value_base64)


def _decoded(text: str | None) -> bytes:
    return base64.b64decode(text, validate=True) if text else b""


def _all_or_none(texts: Sequence[str | None]) -> pa.StringArray:
    known = [text.encode() for text in texts if text is not None]
    if known and len(known) < len(texts):
        raise ValueError("only some lines have a stream")
    return binary_array(known).cast(pa.string()) if known else pa.nulls(len(texts), pa.string())


def _sequences(numbers: Sequence[int | None]) -> pa.Int64Array:
    known = [number for number in numbers if number is not None]
    if known and (len(known) < len(numbers) or not 0 <= min(known) <= max(known) < 1 << 63):
        raise ValueError("only some lines have a sequence")
    return int_array(known) if known else pa.nulls(len(numbers), pa.int64())


def _headers(rows: Sequence[Sequence[_HeaderLine]]) -> pa.ListArray:
    pairs = [pair for row in rows for pair in row]
    keys = binary_array([pair.key.encode() for pair in pairs]).cast(pa.string())
    values = binary_array(
        [_decoded(pair.value_base64) if pair.value is None else pair.value.encode() for pair in pairs]
    )
    ends = int_array([*accumulate(map(len, rows), initial=0)]).cast(pa.int32())
    return pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays([keys, values], ["key", "value"]))
