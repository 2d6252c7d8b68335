"""Assets that documents describe: keys, wanted configurations, faults, and the labels in metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from natsctl.api.errors import UsageError
from natsctl.api.locations import Location
from natsctl.client.asset_config import CREATOR, LABELS, OWNER, PROTECT
from natsctl.client.buckets import KV, OBJECTS


class Kind(StrEnum):
    """The kind of an asset in documents; the value is its `kind:`."""

    STREAM = "Stream"
    CONSUMER = "Consumer"
    KEY_VALUE = "KeyValue"
    OBJECT_STORE = "ObjectStore"


class AssetKey(NamedTuple):
    """The key of an asset on the server: a stream, or with `consumer` a consumer of it."""

    stream: str
    consumer: str = ""

    @property
    def origin(self) -> AssetKey:
        """The stream itself, or the stream of the consumer."""
        return AssetKey(self.stream)

    @property
    def kind(self) -> Kind:
        if self.consumer:
            return Kind.CONSUMER
        if KV.is_mine(self.stream):
            return Kind.KEY_VALUE
        return Kind.OBJECT_STORE if OBJECTS.is_mine(self.stream) else Kind.STREAM

    @property
    def name(self) -> str:
        """The name in documents and messages: a stream, `STREAM > CONSUMER`, or a bucket without its prefix."""
        if self.consumer:
            return f"{self.stream} > {self.consumer}"
        kinds = {Kind.KEY_VALUE: KV, Kind.OBJECT_STORE: OBJECTS}
        bucket = kinds.get(self.kind)
        return bucket.bucket_of(self.stream) if bucket else self.stream

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


DEFAULT_OWNER = "default"


@dataclass(frozen=True, slots=True)
class DesiredAsset:
    """One asset as a document describes it.

    `config` has the wire's keys and values (nanoseconds, bytes, RFC 3339), those that the document gives and no others;
    of a bucket it is the configuration of its stream, whole. `kind` is the word that the document used.
    A field that the document does not mention is left as it is where the asset exists.
    """

    key: AssetKey
    kind: Kind
    config: dict[str, Any]
    place: Location
    protect: bool = False
    """Neither removed nor replaced until a document lifts the protection."""
    create_only: bool = False
    """Create it if absent; if it exists leave it unchanged, whatever differs."""
    nulls: frozenset[str] = frozenset()
    """Fields that the document sets to null, `metadata.KEY` included: they get their default."""
    at_creation: frozenset[str] = frozenset()
    """Fields, `metadata.KEY` included, that apply at creation only: an existing asset keeps its own values."""

    @property
    def mentioned(self) -> frozenset[str]:
        """The fields that the document mentions, those at null included."""
        return (self.nulls | self.config.keys()) - self.at_creation


@dataclass(frozen=True, slots=True)
class DocumentSet:
    """A set of documents: each asset once, in the order of the documents.

    `owner` labels the assets created from it, so that a later set of the same owner can remove them.
    `notes` report skipped entries.
    """

    wanted: dict[AssetKey, DesiredAsset]
    owner: str = DEFAULT_OWNER
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_owned: bool = True
    """Whether an owner was named: nothing is pruned without one."""


@dataclass(frozen=True, slots=True)
class Fault:
    place: Location
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


class DocumentError(UsageError):
    """All mistakes of a set of documents, in the order of files and lines."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = list(faults)


SERVER_MADE: Final = "_nats."
"""The prefix of keys that servers write."""


def owner_of(config: Mapping[str, Any]) -> str:
    return str(_metadata(config).get(OWNER, ""))


def creator_of(config: Mapping[str, Any]) -> str:
    """Return the owner that created an asset, or "" if natsctl did not create it."""
    return str(_metadata(config).get(CREATOR, ""))


def is_adopted(config: Mapping[str, Any]) -> bool:
    """Return whether an asset was not created by the documents of its owner: it was made by hand, or taken over."""
    return not creator_of(config) or creator_of(config) != owner_of(config)


def is_protected(config: Mapping[str, Any]) -> bool:
    return _metadata(config).get(PROTECT) == "true"


def with_labels(config: Mapping[str, Any], owner: str, protect: bool, creator: str = "") -> dict[str, Any]:
    """Return the configuration with its owner's labels replacing any others."""
    labels = {OWNER: owner, **({PROTECT: "true"} if protect else {}), **({CREATOR: creator} if creator else {})}
    return {**config, "metadata": {**_metadata(without_labels(config)), **labels}}


def without_labels(config: Mapping[str, Any]) -> dict[str, Any]:
    return _without(config, lambda key: key in LABELS)


def without_server_made(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration without the metadata that servers write; labels are kept."""
    return _without(config, lambda key: key.startswith(SERVER_MADE))


def _metadata(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found = config.get("metadata")
    return found if isinstance(found, Mapping) else {}


def _without(config: Mapping[str, Any], unwanted: Any) -> dict[str, Any]:
    """Return the configuration without some keys of its metadata, and without metadata if none is left."""
    rest = {key: value for key, value in config.items() if key != "metadata"}
    kept = {key: value for key, value in _metadata(config).items() if not unwanted(key)}
    return {**rest, "metadata": kept} if kept else rest
