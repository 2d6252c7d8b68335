"""JSON on the wire as the reference writes and reads it, and documents that people write.

`encode` escapes like Go; `decode(strict=True)` refuses what the reference's strict API refuses, with its texts; `load` takes
the parsed content of a file and tells what is wrong in it by path.
"""

from functools import cache
from typing import Any, TypeVar

import msgspec

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.api.model import Model

T = TypeVar("T")
M = TypeVar("M", bound=Model)

_encoder = msgspec.json.Encoder()


class InvalidJSON(NatsctlError):
    """A JSON text that is not what it should be; the text is what the reference puts after `invalid JSON: `."""


def encode(value: object) -> bytes:
    """Return the JSON of a model (or builtins) in Go's spelling: fields in order, no blanks, `<`, `>` and `&` escaped."""
    raw = _encoder.encode(value)
    if b"<" in raw or b">" in raw or b"&" in raw:
        raw = raw.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    if b"\xe2\x80\xa8" in raw or b"\xe2\x80\xa9" in raw:
        raw = raw.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return raw


@cache
def _decoder(wanted: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(wanted)


def decode(raw: bytes, wanted: type[T], strict: bool = False) -> T:
    """Return the value of a JSON text; `strict` refuses unknown keys as the reference's API does. Raises InvalidJSON."""
    if not strict:
        try:
            return _decoder(wanted).decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidJSON(str(error)) from error
    try:
        return _decoder(wanted).decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidJSON(str(error)) from error


def load(builtins: Any, wanted: type[M], origin: str) -> M:
    """Return the model that a document of builtins (parsed JSON or YAML) describes. Raises UsageError by path and reason."""
    try:
        return msgspec.convert(builtins, wanted)
    except msgspec.ValidationError as error:
        raise UsageError(f"{origin}: {error}") from error


def recast(value: Model, wanted: type[M]) -> M:
    """Return a `wanted` with the fields that `value` shares with it, such as the StreamConfig of a create request."""
    return wanted(**{name: getattr(value, name) for name in wanted.__struct_fields__ if hasattr(value, name)})
