"""Assets as documents, ready to be applied elsewhere: configurations and nothing else, in a stable order.

What a server makes itself is left out, what it fills in is left out where a server fills it in again, durations and
sizes are words, buckets are in their own words where these say all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import msgspec

from natsctl.api.model import Model
from natsctl.api.shapes import Shape, shape_of
from natsctl.api.stream import StreamConfig
from natsctl.plan.asset import AssetKey, Kind, Place
from natsctl.plan.documents.extra import EXTRA, known_of, unknown_of
from natsctl.plan.documents.lower import WORDS, lowered, raise_bucket
from natsctl.plan.export.shorten import ordered, shape_for, shortened
from natsctl.plan.export.wording import worded
from natsctl.plan.labels import is_protected, owner_of, stripped, without_server_made
from natsctl.plan.planner.settle import ConfigRefusedError, Surroundings, settled, settled_stream
from natsctl.plan.wanted import DEFAULT_OWNER, DocumentSet, Wanted
from natsctl.plan.world import Live, World

Config = dict[str, Any]

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
    """A document of one asset, with the keys of its configuration beside its kind."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class Written:
    """One asset as a document writes it, without its kind."""

    key: AssetKey
    kind: Kind
    words: Config


def wanted_of(world: World, *, ephemeral: bool = False) -> DocumentSet:
    """Return the assets of an account as documents would describe them; their owner if all share one.

    Consumers that mirrors, sources and readers keep for themselves are left out, others without a durable name unless
    `ephemeral`. Labels become their meaning; server-written metadata and pauses are left out.
    """
    wanted = {key: _wanted(live) for key, live in sorted(world.assets.items()) if _is_exported(live, ephemeral)}
    owners = {owner for key in wanted if (owner := owner_of(world.assets[key].config))}
    return DocumentSet(wanted, owners.pop() if len(owners) == 1 else DEFAULT_OWNER)


def _is_exported(live: Live, ephemeral: bool) -> bool:
    if not live.key.consumer:
        return True
    config = live.config
    if config.get("durable_name"):
        return True
    return ephemeral and not (config.get("direct") or config.get("sourcing"))


def _wanted(live: Live) -> Wanted:
    config = without_server_made(stripped(live.config))
    config.pop("pause_until", None)
    return Wanted(live.key, live.key.kind, config, Place("the server", path=live.key.name), is_protected(live.config))


@dataclass(frozen=True)
class Exporter:
    """Export of the assets of a set as documents; `full` includes what servers fill in."""

    documents: DocumentSet
    full: bool = False

    @cached_property
    def around(self) -> Surroundings:
        """The streams of the set. Limits of an account are ignored: elsewhere there may be others."""
        return Surroundings(self._stream)

    def _stream(self, name: str) -> StreamConfig | None:
        if name not in self._streams:
            one = self.documents.wanted.get(AssetKey(name))
            try:
                self._streams[name] = settled_stream(one.key, one.config, Surroundings()) if one else None
            except ConfigRefusedError:
                self._streams[name] = None
        return self._streams[name]

    @cached_property
    def _streams(self) -> dict[str, StreamConfig | None]:
        return {}

    def written(self) -> list[Written]:
        """Return every asset, streams in the order of their names, each before its consumers."""
        return [self._written(self.documents.wanted[key]) for key in sorted(self.documents.wanted)]

    def _written(self, one: Wanted) -> Written:
        switches: Config = {name: True for name in _SWITCHES if getattr(one, name)}
        raised = None if one.key.consumer or self.full else _raised(one, self.around)
        if raised is not None:
            kind = Kind(raised.pop("kind"))
            return Written(one.key, kind, worded(ordered(raised, _words_of(kind)), _words_of(kind)) | switches)
        kind, shape = Kind.CONSUMER if one.key.consumer else Kind.STREAM, shape_for(one.key)
        config = self._config(one)
        extra = unknown_of(config, shape)
        words = worded(known_of(config, shape), shape) | ({EXTRA: worded(extra, None)} if extra else {})
        if one.kind in (Kind.STREAM, Kind.CONSUMER):
            words |= {name: None for name in sorted(one.nulls) if "." not in name}
            switches |= {"ignore": sorted(one.at_creation)} if one.at_creation else {}
        return Written(one.key, kind, words | switches)

    def _config(self, one: Wanted) -> Config:
        if one.key.consumer:
            return self._consumer(one)
        named = {**one.config, "name": one.key.stream}
        return self._full(one.key, named) if self.full else shortened(one.key, named, self.around, ("name",))

    def _consumer(self, one: Wanted) -> Config:
        """Return the configuration of a consumer; a name alone means a durable one, unless it ends when unused."""
        durable = bool(one.config.get("durable_name"))
        named = {**one.config, "durable_name" if durable else "name": one.key.consumer}
        if self.full:
            return self._full(one.key, named)
        required = ("durable_name",) if durable else ("name", "inactive_threshold")
        config = shortened(one.key, named, self.around, required)
        if durable:
            config.pop("name", None)
            if not config.get("inactive_threshold"):
                del config["durable_name"]
                config = {"name": one.key.consumer, **config}
        return config

    def _full(self, key: AssetKey, config: Config) -> Config:
        """Return the configuration as a server would return it; of a refused one, all that is there."""
        with suppress(ConfigRefusedError):
            config = config | settled(key, config, self.around)
        return ordered(config, shape_for(key))

    def plain(self, assets: Iterable[Written] | None = None) -> Config:
        """Return one document of these assets, or of all."""
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

    def typed(self, assets: Iterable[Written] | None = None) -> list[Config]:
        """Return one document for each of these assets, or of all."""
        return [self._typed(one) for one in (self.written() if assets is None else assets)]

    def _typed(self, one: Written) -> Config:
        above = {"stream": one.key.stream} if one.key.consumer else {}
        return {"kind": str(one.kind), **self._owner, **above, **one.words}

    @property
    def _owner(self) -> Config:
        owner = self.documents.owner
        return {} if owner == DEFAULT_OWNER else {"owner": worded(owner, None)}


def exported(world: World, *, full: bool = False, ephemeral: bool = False) -> list[Config]:
    """Return the documents of an account: one that lists all of it."""
    return [Exporter(wanted_of(world, ephemeral=ephemeral), full).plain()]


def remarks(documents: DocumentSet) -> list[str]:
    """Return notes on the parts of an account that no server recreates from the documents, with advice."""
    streams = [one for one in documents.wanted.values() if not one.key.consumer]
    sealed = [
        f"{one.key} is sealed: no server makes a stream that is, leave `sealed` out until it is filled"
        for one in streams
        if one.config.get("sealed")
    ]
    templated = [
        f"{one.key} was made by template {one.config['template_owner']}: leave `template_owner` out for a stream alone"
        for one in streams
        if one.config.get("template_owner")
    ]
    return sealed + templated


def _words_of(kind: Kind) -> Shape:
    return shape_of(WORDS[kind])


def _raised(one: Wanted, around: Surroundings) -> Config | None:
    """Return the bucket that a stream is, if bucket fields describe all of it, unknown keys included."""
    raised = raise_bucket({**one.config, "name": one.key.stream})
    if raised is None:
        return None
    words: Mapping[str, Any] = {key: value for key, value in raised.items() if key != "kind"}
    try:
        again = settled(one.key, lowered(Kind(raised["kind"]), words), around)
        return raised if again == settled(one.key, one.config, around) else None
    except ConfigRefusedError:
        return None
