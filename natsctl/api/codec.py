"""JSON on the wire as nats-server writes and reads it.

`encode` escapes like Go; `decode(strict=True)`, imported on first use, refuses the same as nats-server's strict API,
with its texts.
"""

import codecs
from collections.abc import Sequence
from functools import cache
from io import BytesIO
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from natsctl.api.errors import NatsctlError
from natsctl.api.model import Model
from natsctl.api.subject_index import Steps, finish

T = TypeVar("T")
M = TypeVar("M", bound=Model)

_encoder = msgspec.json.Encoder()


class InvalidJSONError(NatsctlError):
    """Invalid JSON; the text is nats-server's after `invalid JSON: `."""


def encode(value: object) -> bytes:
    """Return the JSON of a model or of builtins in Go's spelling: fields in order, no blanks, `<`, `>`, `&` escaped."""
    raw = _encoder.encode(value)
    if b"<" in raw or b">" in raw or b"&" in raw:
        raw = raw.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    if not raw.isascii() and (b"\xe2\x80\xa8" in raw or b"\xe2\x80\xa9" in raw):
        raw = raw.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return raw


BYTES_PER_COST: Final = 2048
"""Bytes of JSON that cost as much to read or write as one message."""
COPY_STEP: Final = 1 << 20
"""Bytes of encoded text that one step copies: less than a millisecond."""
COPIED_PER_COST: Final = 4 * BYTES_PER_COST
ENCODED_ITEMS: Final = 1024
TEXT_STEP: Final = 64 << 10

HOLE: Final[Any] = msgspec.Raw(b"\0")
"""The place in a value for a long list, map or string: `filling` puts its text there. No other text has a zero byte."""


def filling(value: object, *texts: Sequence[bytes]) -> Steps[bytes]:
    """Encode a value with the pieces of a text for each `HOLE`, in steps: they may be tens of megabytes."""
    pieces: list[bytes] = []
    for around, text in zip(encode(value).split(bytes(HOLE)), (*texts, ()), strict=True):
        pieces += (around, *text)
    found, copied = BytesIO(bytes(sum(map(len, pieces)))), 0  # of the right size: it is not copied to grow
    for piece in pieces:
        for at in range(0, len(piece), COPY_STEP):
            copied += found.write(memoryview(piece)[at : at + COPY_STEP])
            if copied >= COPY_STEP:
                yield copied // COPIED_PER_COST
                copied = 0
    return found.getvalue()


def encoding_items(items: list[Any] | dict[str, Any]) -> Steps[list[bytes]]:
    """Return the text of a list or a map in pieces."""
    pairs, rest = isinstance(items, dict), iter(items.items() if isinstance(items, dict) else items)
    pieces = [b"{" if pairs else b"["]
    while some := list(islice(rest, ENCODED_ITEMS)):
        text = encode(dict(some) if pairs else some)
        pieces += (text[1:-1], b",")
        yield 1 + len(text) // BYTES_PER_COST
    pieces[1 if len(pieces) == 1 else -1 :] = [b"}" if pairs else b"]"]
    return pieces


def encoding_text(raw: bytes) -> Steps[list[bytes]]:
    """Return a string of UTF-8, invalid bytes replaced, in pieces."""
    decoder, pieces = codecs.getincrementaldecoder("utf-8")("replace"), [b'"']
    for at in range(0, len(raw), TEXT_STEP):
        pieces.append(encode(decoder.decode(raw[at : at + TEXT_STEP], at + TEXT_STEP >= len(raw)))[1:-1])
        yield TEXT_STEP // BYTES_PER_COST
    return [*pieces, b'"']


class _Decoders(dict[Any, Any]):
    """One compiled decoder per type, made when first asked for."""

    def __missing__(self, wanted: Any) -> Any:
        decoder = self[wanted] = msgspec.json.Decoder(wanted)
        return decoder


_decoder_of = _Decoders()


def decoding(raw: bytes, wanted: type[M], plain: bool = False) -> Steps[M]:
    """Decode a request in steps: strictly, or, if `plain`, one value with unknown keys ignored, as Go's Unmarshal does.

    Raises InvalidJSONError.
    """
    from natsctl.api.strict import DecodeError, decoding_values, reading_values

    try:
        values = yield from decoding_values(raw)
        yield len(raw) // BYTES_PER_COST
        found = yield from reading_values(values, wanted, plain)
        yield len(raw) // BYTES_PER_COST
        return msgspec.convert(found, wanted)
    except (DecodeError, msgspec.MsgspecError) as error:
        raise InvalidJSONError(str(error)) from error


def decode(raw: bytes, wanted: type[T], strict: bool = False) -> T:
    """Return the value of a JSON text. Raises InvalidJSONError.

    `strict` (for models) refuses unknown keys and wrong types with nats-server's texts, takes an empty text as the
    zero value, and reads null as absent; else unknown keys are ignored.
    """
    if strict and issubclass(wanted, Model):
        return finish(decoding(raw, wanted))
    try:
        value: T = _decoder_of[wanted].decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJSONError(str(error)) from error
    return value


class _Names(NamedTuple):
    """The keys of a struct by their spelling and by their fold, and the shapes in lists and maps."""

    fields: dict[str, "_Names | None"]
    folded: dict[str, str]
    inner: "_Names | None"


_NO_NAMES: Final = _Names({}, {}, None)


def fold(key: str) -> str:
    """Return the common form of keys that are the same to Go's encoding/json."""
    if key.isascii():
        return key.lower()
    return "".join(folded if len(folded := char.casefold()) == 1 else char for char in key)


@cache
def _names_of(wanted: Any, also: tuple[str, ...] = ()) -> _Names | None:
    import msgspec.inspect as inspect

    def names_of(found: Any) -> _Names | None:
        if isinstance(found, inspect.UnionType):
            return next(filter(None, map(names_of, found.types)), None)
        if isinstance(found, inspect.StructType):
            fields = {field.encode_name: names_of(field.type) for field in found.fields}
            return _Names(fields, {fold(name): name for name in fields}, None)
        inner = getattr(found, "value_type", None) or getattr(found, "item_type", None)
        return _Names({}, {}, names_of(inner)) if inner is not None else None

    names = names_of(inspect.type_info(wanted))
    if names is None:
        return None
    fields = names.fields | dict.fromkeys(also)
    return _Names(fields, {fold(name): name for name in fields}, names.inner)


def _folding(value: Any, names: _Names | None) -> Steps[Any]:
    """Return builtins under the keys of `names`, in steps: one container after another, however deep they are."""
    from natsctl.api.json_steps import JsonPairs

    root: dict[Any, Any] = {"": value}
    waiting: list[tuple[Any, Any, Any, _Names | None, bool]] = [(root, "", value, names, False)]
    items = 0
    while waiting:
        holder, place, held, names, merges = waiting.pop()
        if not isinstance(held, list):
            holder[place] = held
            continue
        items += 1 + len(held)
        if items >= FOLDED_ITEMS:
            yield items // ITEMS_PER_COST
            items = 0
        fields, folded, inner = names or _NO_NAMES
        first = len(waiting)
        if not isinstance(held, JsonPairs):
            found = holder[place] = list(held)
            waiting += [
                (found, index, inside, inner, False) for index, inside in enumerate(held) if isinstance(inside, list)
            ]
        else:
            before = holder.get(place) if merges else None
            merged = holder[place] = dict(before) if isinstance(before, dict) else {}
            for number, (key, inside) in enumerate(held, 1):
                if not number % FOLDED_ITEMS:
                    yield FOLDED_ITEMS // ITEMS_PER_COST
                name = key if key in fields else folded.get(fold(key), key)
                if isinstance(inside, list) or (name in merged and inside is not None):
                    waiting.append((merged, name, inside, fields.get(name, inner), name in fields))
                    merged.setdefault(name, None)
                elif inside is not None:
                    merged[name] = inside
        waiting[first:] = reversed(waiting[first:])
    return root[""]


FOLDED_ITEMS: Final = 512
"""Items of lists and objects that one step of `reading_folded` examines: less than a millisecond."""
ITEMS_PER_COST: Final = 8


def read_folded(raw: bytes, wanted: Any, *also: str) -> Any:
    """Run all steps of `reading_folded`."""
    return finish(reading_folded(raw, wanted, *also))


def reading_folded(raw: bytes, wanted: Any, *also: str) -> Steps[Any]:
    """Return the builtins of a JSON text under the keys of `wanted` (and `also`), as Go's encoding/json finds them.

    A key in the spelling of a field is that field, else one that differs in case; of several the last counts, objects
    are read one over the other, and null says nothing. Other keys stay as they are. Raises InvalidJSONError.
    """
    from natsctl.api.json_steps import reading_json

    try:
        values = yield from reading_json(raw.decode(), pairs=True)
    except ValueError as error:  # a JSONDecodeError, or a UnicodeDecodeError
        raise InvalidJSONError(str(error)) from error
    if len(values) != 1:
        raise InvalidJSONError(f"{len(values)} JSON values instead of one")
    yield len(raw) // BYTES_PER_COST
    return (yield from _folding(values[0], _names_of(wanted, also)))


def recast(value: Model, wanted: type[M]) -> M:
    """Return a `wanted` with the fields that `value` shares with it, such as the StreamConfig of a create request."""
    return wanted(**{name: getattr(value, name) for name in wanted.__struct_fields__ if hasattr(value, name)})


MAX_QUOTED: Final = 4096
"""Characters of a text that are quoted; nats-server quotes a name of a megabyte, too."""
_GO_ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def go_quote(text: str) -> str:
    """Return the beginning of `text` as Go's %q writes it."""
    out = []
    for char in text[:MAX_QUOTED]:
        if char in _GO_ESCAPES:
            out.append(_GO_ESCAPES[char])
        elif char.isprintable():
            out.append(char)
        elif ord(char) < 0x80:
            out.append(f"\\x{ord(char):02x}")
        else:
            out.append(f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}")
    return '"' + "".join(out) + '"'
