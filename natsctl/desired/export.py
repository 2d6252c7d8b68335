"""Live assets as documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import msgspec

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.documents import escaped
from natsctl.api.locations import Location
from natsctl.api.model import Model, Shape, shape_of
from natsctl.api.stream import StreamConfig
from natsctl.api.units import DAY, MINUTE, YEAR, format_duration, parse_duration, parse_size
from natsctl.client.asset_config import CREATED, new_stream
from natsctl.client.deadletters.capture import COPYING_CONSUMER
from natsctl.desired.assets import (
    DEFAULT_OWNER,
    AssetKey,
    DesiredAsset,
    DocumentSet,
    Kind,
    is_protected,
    owner_of,
    without_labels,
    without_server_made,
)
from natsctl.desired.documents.asset_documents import (
    ACKS,
    DEAD_LETTERS,
    EXTRA,
    DeadLetterWords,
    capture_fields,
    captured_stream,
    default_acks,
    known_of,
    unknown_of,
    words_of_capture,
)
from natsctl.desired.documents.bucket_fields import WORDS, bucket_words, stream_fields
from natsctl.desired.live import LiveAsset, LiveState
from natsctl.desired.server_defaults import (
    ConfigRefusedError,
    ServerContext,
    kept,
    normalised,
    normalised_stream,
    without_nulls,
)

_SIZES: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def worded(value: Any, shape: Shape | None) -> Any:
    """Return a value with readable durations and sizes, and text escaped for interpolation."""
    if isinstance(value, Mapping):
        return {key: worded(item, _inner(shape, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [worded(item, shape.item if shape is not None else None) for item in value]
    if isinstance(value, str):
        return escaped(value)
    if shape is None or shape.human not in _WORDS or not isinstance(value, int) or isinstance(value, bool):
        return value
    say, read = _WORDS[shape.human]
    text = say(value)
    return text if text and read(text) == value else value


def duration_words(ns: int) -> str:
    """Return a duration as text: "1y", "30d", "1h30m", "1.5s"; "" if the number is clearer."""
    if ns <= 0:
        return ""
    for unit, name in ((YEAR, "y"), (DAY, "d")):
        if ns % unit == 0:
            return f"{ns // unit}{name}"
    text = format_duration(ns)
    if ns % MINUTE == 0:
        text = text.removesuffix("0s")
        text = text.removesuffix("0m") if text.endswith("h0m") else text
    return text


def size_words(size: int) -> str:
    """Return a size in the largest unit that divides it: "10GiB"; "" if none does."""
    power = 0
    while size > 0 and size % 1024 == 0 and power < len(_SIZES):
        size, power = size // 1024, power + 1
    return f"{size}{_SIZES[power - 1]}" if power else ""


def _inner(shape: Shape | None, key: str) -> Shape | None:
    if shape is None:
        return None
    if shape.kind == "dict":
        return shape.item
    known = shape.fields.get(key)
    return known.shape if known is not None else None


_WORDS: Final[dict[str, tuple[Callable[[int], str], Callable[[str], int]]]] = {
    "duration": (duration_words, parse_duration),
    "size": (size_words, parse_size),
}


Config = dict[str, Any]
Settle = Callable[[Mapping[str, Any]], Config]


def shortened(
    key: AssetKey,
    config: Mapping[str, Any],
    around: ServerContext,
    required: Sequence[str],
    known: dict[str, tuple[str, ...]],
) -> Config:
    """Return the part of `config`, in the order of the contract, that normalises to the whole; `required` always stays.

    `known` keeps the fields of each part that was found, for assets that differ in names and subjects only. A
    server may refuse a configuration that it returned itself (it fills in fields that exclude others): then its own
    values count. If no part normalises to the whole, the configuration is returned whole, without empty fields.
    """
    shape = shape_for(key)
    own = {} if key.consumer else dict.fromkeys(CREATED, False)  # a new stream would have another value
    whole = ordered(own | without_nulls(config), shape)
    bare = ordered(own | _without_empty(whole, shape), shape)

    def settle(part: Mapping[str, Any]) -> Config:
        return normalised(key, part if key.consumer else new_stream(part), around)

    aim = _aim(key, whole, settle)
    rest = {name: value for name, value in bare.items() if name not in _OWN}
    alike = str((key.kind, *bare, bare.get("subjects") == [key.stream], rest))
    if fields := known.get(alike):
        part = {name: bare[name] for name in fields}
        if _made(part, settle) == aim:
            return part
    grown = _grown(bare, [name for name in required if name in bare], aim, settle)
    part = _thinned(grown, required, aim, settle) if grown is not None else bare
    known[alike] = tuple(part)
    return part


_OWN: Final = frozenset(("name", "durable_name", "subjects", "filter_subject"))
"""Fields with another value for each of many assets that are alike."""


def _aim(key: AssetKey, config: Config, settle: Settle) -> Config:
    """Return the whole configuration as a server keeps it."""
    try:
        return settle(config)
    except ConfigRefusedError:
        return kept(key, config)


def shape_for(key: AssetKey) -> Shape:
    return shape_of(ConsumerConfig if key.consumer else StreamConfig)


def ordered(config: Mapping[str, Any], shape: Shape) -> Config:
    """Return the same in the order of the contract, unknown fields last by name."""
    known = [name for name in shape.fields if name in config]
    unknown = sorted(name for name in config if name not in shape.fields)
    return {name: _ordered_value(config[name], shape, name) for name in (*known, *unknown)}


def _ordered_value(value: Any, shape: Shape, name: str) -> Any:
    known = shape.fields.get(name)
    if known is None:
        return value
    if known.shape.kind == "dict" and isinstance(value, Mapping):
        return {key: value[key] for key in sorted(value)}
    if known.shape.kind == "struct" and isinstance(value, Mapping):
        return ordered(value, known.shape)
    if known.shape.kind == "list" and known.shape.elements().kind == "struct" and isinstance(value, list):
        return [ordered(item, known.shape.elements()) for item in value]
    return value


def _without_empty(config: Mapping[str, Any], shape: Shape) -> Config:
    """Return the configuration without fields at their type's zero value: it has no meaning on the wire."""
    kept = {name: _bare_value(value, shape, name) for name, value in config.items()}
    return {name: value for name, value in kept.items() if value or name not in shape.fields}


def _bare_value(value: Any, shape: Shape, name: str) -> Any:
    known = shape.fields.get(name)
    if known is not None and known.shape.kind == "struct" and isinstance(value, Mapping):
        bare = _without_empty(value, known.shape)
        # Elsewhere an empty origin counts; an empty object does not.
        return bare or (dict(value) if value and name != "consumer_limits" else {})
    if known is not None and known.shape.kind == "list" and known.shape.elements().kind == "struct":
        return [_without_empty(item, known.shape.elements()) for item in value]
    return value


def _grown(whole: Config, start: Sequence[str], aim: Config, settle: Settle) -> Config | None:
    """Return the fields to write, adding fields until the result matches; None if that does not converge."""
    names = set(start)
    while True:
        part = {name: value for name, value in whole.items() if name in names}
        made = _made(part, settle)
        if made == aim:
            return part
        if made is None and (less := _thinned(part, start, aim, settle)) != part:
            return less  # one field was derived from others and cannot be given with them
        wrong = {name for name in whole if name not in names and (made is None or made.get(name) != aim.get(name))}
        if not wrong:
            return None
        names |= wrong


def _made(part: Config, settle: Settle) -> Config | None:
    """Return a part as a server would keep it; None if it refuses it."""
    try:
        return settle(part)
    except ConfigRefusedError:
        return None


def _thinned(part: Config, required: Sequence[str], aim: Config, settle: Settle) -> Config:
    """Return the same without fields that follow from the others."""
    for name in [name for name in part if name not in required]:
        less = {other: value for other, value in part.items() if other != name}
        if _made(less, settle) == aim:
            part = less
    return part


COLLECTIONS: Final = {
    Kind.STREAM: "streams",
    Kind.KEY_VALUE: "key_values",
    Kind.OBJECT_STORE: "object_stores",
    Kind.CONSUMER: "consumers",
}
"""The key of each kind in a plain document, in order."""
_SWITCHES: Final = ("protect", "create_only")


class PlainDocument(Model, kw_only=True):
    """A plain document: assets by kind, streams with their consumers below them."""

    owner: str = ""
    streams: list[dict[str, Any]] = msgspec.field(default_factory=list)
    key_values: list[dict[str, Any]] = msgspec.field(default_factory=list)
    object_stores: list[dict[str, Any]] = msgspec.field(default_factory=list)
    consumers: list[dict[str, Any]] = msgspec.field(default_factory=list)


class TypedDocument(Model, kw_only=True):
    """A document of one asset, with its configuration's keys next to its kind."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class ExportedAsset:
    """One asset as a document writes it, without its kind."""

    key: AssetKey
    kind: Kind
    words: Config


def wanted_of(live_state: LiveState, *, ephemeral: bool = False) -> DocumentSet:
    """Return the assets of an account as documents would describe them; their owner if all share one.

    Consumers that mirrors, sources, readers and `deadletter run` keep for themselves are left out, others without a
    durable name unless `ephemeral`. Labels become their meaning; server-written metadata and pauses are left out.
    """
    wanted = {key: _wanted(live) for key, live in sorted(live_state.assets.items()) if _is_exported(live, ephemeral)}
    owners = {owner for key in wanted if (owner := owner_of(live_state.assets[key].config))}
    return DocumentSet(wanted, owners.pop() if len(owners) == 1 else DEFAULT_OWNER)


def _is_exported(live: LiveAsset, ephemeral: bool) -> bool:
    if not live.key.consumer:
        return True
    config = live.config
    if live.key.consumer == COPYING_CONSUMER or config.get("direct") or config.get("sourcing"):
        return False
    return ephemeral or bool(config.get("durable_name"))


def _wanted(live: LiveAsset) -> DesiredAsset:
    config = without_server_made(without_labels(live.config))
    config.pop("pause_until", None)
    return DesiredAsset(
        live.key, live.key.kind, config, Location("the server", path=live.key.name), is_protected(live.config)
    )


@dataclass(frozen=True)
class Exporter:
    """Export of the assets of a set as documents; `full` includes what servers fill in."""

    documents: DocumentSet
    full: bool = False

    @cached_property
    def around(self) -> ServerContext:
        """The streams of the set. Limits of an account are ignored: elsewhere there may be others."""
        return ServerContext(self._stream)

    def _stream(self, name: str) -> StreamConfig | None:
        if name not in self._streams:
            one = self.documents.wanted.get(AssetKey(name))
            try:
                self._streams[name] = normalised_stream(one.key, one.config, ServerContext()) if one else None
            except ConfigRefusedError:
                self._streams[name] = None
        return self._streams[name]

    @cached_property
    def _streams(self) -> dict[str, StreamConfig | None]:
        return {}

    def written(self) -> list[ExportedAsset]:
        """Return every asset, streams in the order of their names, each before its consumers."""
        wanted = self.documents.wanted
        captures = self._captures
        return [self._written(wanted[key]) for key in sorted(wanted) if key not in captures.values()]

    @cached_property
    def _captures(self) -> dict[AssetKey, AssetKey]:
        """The capture stream of each stream, if a document of the stream can describe all of it."""
        captures: dict[AssetKey, AssetKey] = {}
        for asset in () if self.full else self.documents.wanted.values():
            stream = self.documents.wanted.get(AssetKey(captured_stream(asset.config)))
            if stream is not None and not asset.key.consumer and self._is_described(asset, stream):
                captures[stream.key] = asset.key
        return captures

    def _is_described(self, capture: DesiredAsset, stream: DesiredAsset) -> bool:
        if any(getattr(capture, name) != getattr(stream, name) for name in _SWITCHES):
            return False
        config, _ = capture_fields(stream.key.stream, words_of_capture(capture.config), 1)
        try:
            again = normalised(capture.key, config, self.around)
            return again == normalised(capture.key, {**capture.config, "name": capture.key.stream}, self.around)
        except ConfigRefusedError:
            return False

    def _written(self, one: DesiredAsset) -> ExportedAsset:
        switches: Config = {name: True for name in _SWITCHES if getattr(one, name)}
        raised = None if one.key.consumer or self.full else _raised(one, self.around)
        if raised is not None:
            kind = Kind(raised.pop("kind"))
            return ExportedAsset(one.key, kind, worded(ordered(raised, _words_of(kind)), _words_of(kind)) | switches)
        kind, shape = Kind.CONSUMER if one.key.consumer else Kind.STREAM, shape_for(one.key)
        config = self._config(one)
        extra = unknown_of(config, shape)
        words = worded(known_of(config, shape), shape) | ({EXTRA: worded(extra, None)} if extra else {})
        if one.kind in (Kind.STREAM, Kind.CONSUMER):
            words |= {name: None for name in sorted(one.nulls) if "." not in name}
            ignored = set(one.at_creation)
            if ACKS in ignored and words.get(ACKS) == default_acks(one.config):
                del words[ACKS]  # that is the default of a new consumer
                ignored.remove(ACKS)
            switches |= {"ignore": sorted(ignored)} if ignored else {}
        if capture := self._captures.get(one.key):
            described = words_of_capture(self.documents.wanted[capture].config)
            words[DEAD_LETTERS] = worded(described, shape_of(DeadLetterWords))
        return ExportedAsset(one.key, kind, words | switches)

    def _config(self, one: DesiredAsset) -> Config:
        if one.key.consumer:
            return self._consumer(one)
        named = {**one.config, "name": one.key.stream}
        return self._full(one.key, named) if self.full else self._shortened(one.key, named, ("name",))

    def _consumer(self, one: DesiredAsset) -> Config:
        """Return the configuration of a consumer; with only a name it is durable, unless it ends when unused."""
        durable = bool(one.config.get("durable_name"))
        named = {**one.config, "durable_name" if durable else "name": one.key.consumer}
        if self.full:
            return self._full(one.key, named)
        required = ("durable_name", ACKS) if durable else ("name", "inactive_threshold", ACKS)
        config = self._shortened(one.key, named, required)
        if durable:
            config.pop("name", None)
            if not config.get("inactive_threshold"):
                del config["durable_name"]
                config = {"name": one.key.consumer, **config}
        return config

    def _shortened(self, key: AssetKey, config: Config, required: Sequence[str]) -> Config:
        return shortened(key, config, self.around, required, self._known)

    @cached_property
    def _known(self) -> dict[str, tuple[str, ...]]:
        return {}

    def _full(self, key: AssetKey, config: Config) -> Config:
        """Return the configuration as a server would return it; of a refused one, all that is there."""
        with suppress(ConfigRefusedError):
            config = config | normalised(key, config, self.around)
        return ordered(config, shape_for(key))

    def plain(self, assets: Iterable[ExportedAsset] | None = None) -> Config:
        listed: dict[str, list[Config]] = {name: [] for name in COLLECTIONS.values()}
        streams: dict[str, Config] = {}
        for one in self.written() if assets is None else assets:
            words = dict(one.words)
            if one.kind is Kind.CONSUMER and one.key.stream in streams:
                streams[one.key.stream].setdefault("consumers", []).append(words)
                continue
            if one.kind is Kind.CONSUMER:
                words = {"stream": one.key.stream, **words}
            if one.kind is Kind.STREAM:
                streams[one.key.stream] = words
            listed[COLLECTIONS[one.kind]].append(words)
        return {**self._owner, **({name: found for name, found in listed.items() if found} or {"streams": []})}

    def typed(self, assets: Iterable[ExportedAsset] | None = None) -> list[Config]:
        """Return one document for each of these assets, or of all."""
        return [self._typed(one) for one in (self.written() if assets is None else assets)]

    def _typed(self, one: ExportedAsset) -> Config:
        above = {"stream": one.key.stream} if one.key.consumer else {}
        return {"kind": str(one.kind), **self._owner, **above, **one.words}

    @property
    def _owner(self) -> Config:
        owner = self.documents.owner
        return {} if owner == DEFAULT_OWNER else {"owner": worded(owner, None)}


def exported(live_state: LiveState, *, full: bool = False, ephemeral: bool = False) -> list[Config]:
    """Return the documents of an account: one that lists all of it."""
    return [Exporter(wanted_of(live_state, ephemeral=ephemeral), full).plain()]


def remarks(documents: DocumentSet) -> list[str]:
    """Return notes on the parts of an account that no server recreates from the documents, with advice."""
    streams = [one for one in documents.wanted.values() if not one.key.consumer]
    sealed = [
        f"{stream.key} is sealed: no server makes a stream that is, leave `sealed` out until it is filled"
        for stream in streams
        if stream.config.get("sealed")
    ]
    templated = [
        f"{stream.key} was made by template {stream.config['template_owner']}: omit `template_owner` for a plain stream"
        for stream in streams
        if stream.config.get("template_owner")
    ]
    return sealed + templated


def _words_of(kind: Kind) -> Shape:
    return shape_of(WORDS[kind])


def _raised(one: DesiredAsset, around: ServerContext) -> Config | None:
    """Return the bucket that a stream is, if bucket fields describe all of it, unknown keys included."""
    raised = bucket_words({**one.config, "name": one.key.stream})
    if raised is None:
        return None
    words: Mapping[str, Any] = {key: value for key, value in raised.items() if key != "kind"}
    try:
        again = normalised(one.key, stream_fields(Kind(raised["kind"]), words), around)
        return raised if again == normalised(one.key, one.config, around) else None
    except ConfigRefusedError:
        return None
