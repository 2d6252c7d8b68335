"""JSON on the wire as the reference writes and reads it, and documents that people write.

`encode` escapes like Go; `decode(strict=True)` refuses what the reference's strict API refuses, with its texts; `load`
takes the parsed content of a file and tells what is wrong in it by path. Both are imported on first use.
"""

from typing import Any, TypeVar

import msgspec

from natsctl.api.errors import NatsctlError
from natsctl.api.model import Model

T = TypeVar("T")
M = TypeVar("M", bound=Model)

_encoder = msgspec.json.Encoder()


class InvalidJSON(NatsctlError):
    """A JSON text that is not what it should be; the text is what the reference puts after `invalid JSON: `."""


def encode(value: object) -> bytes:
    """Return the JSON of a model or of builtins in Go's spelling: fields in order, no blanks, `<`, `>`, `&` escaped."""
    raw = _encoder.encode(value)
    if b"<" in raw or b">" in raw or b"&" in raw:
        raw = raw.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    if b"\xe2\x80\xa8" in raw or b"\xe2\x80\xa9" in raw:
        raw = raw.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return raw


class _Decoders(dict[Any, Any]):
    """One compiled decoder per type, made when first asked for."""

    def __missing__(self, wanted: Any) -> Any:
        decoder = self[wanted] = msgspec.json.Decoder(wanted)
        return decoder


_decoder_of = _Decoders()


def decode(raw: bytes, wanted: type[T], strict: bool = False) -> T:
    """Return the value of a JSON text. Raises InvalidJSON.

    `strict` (for models) refuses unknown keys and wrong types with the reference's texts, takes an empty text as the
    zero value, and reads null as absent; else unknown keys are ignored.
    """
    if strict and issubclass(wanted, Model):
        from natsctl.api.strict import Fault, read_strict

        try:
            return msgspec.convert(read_strict(raw, wanted), wanted)
        except (Fault, msgspec.MsgspecError) as error:
            raise InvalidJSON(str(error)) from error
    try:
        value: T = _decoder_of[wanted].decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJSON(str(error)) from error
    return value


def decode_plain(raw: bytes, wanted: type[M]) -> M:
    """Return the model of one JSON value, with unknown keys ignored; faults are told as Go's Unmarshal tells them.

    Raises InvalidJSON.
    """
    from natsctl.api.strict import Fault, read_plain

    try:
        return msgspec.convert(read_plain(raw, wanted), wanted)
    except (Fault, msgspec.MsgspecError) as error:
        raise InvalidJSON(str(error)) from error


def load(document: Any, wanted: type[M], origin: str) -> M:
    """Return the model that a document (parsed JSON or YAML) describes. Raises UsageError `ORIGIN: $.path: expected …`.

    Durations, sizes and times may be words ("1y", "10GiB"); a whole info document counts as its `config`.
    """
    from natsctl.api.documents import load_document

    return load_document(document, wanted, origin)


def recast(value: Model, wanted: type[M]) -> M:
    """Return a `wanted` with the fields that `value` shares with it, such as the StreamConfig of a create request."""
    return wanted(**{name: getattr(value, name) for name in wanted.__struct_fields__ if hasattr(value, name)})
