"""The fields of bucket documents, converted to the configurations of their streams and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import field

from natsctl.api.errors import UsageError
from natsctl.api.model import Duration, Int, Model, Size32, Size64
from natsctl.api.stream import Placement, RePublish, StorageType, StreamConfig, StreamSource
from natsctl.api.stream_config import settle
from natsctl.api.stream_rules import Draft
from natsctl.client import asset_config
from natsctl.client.buckets import KV, OBJECTS
from natsctl.desired.assets import Kind, without_labels, without_server_made


class ObjectStoreWords(Model):
    """An object store; absent fields have the default of `natsctl object add`."""

    bucket: str = ""
    description: str = ""
    ttl: Duration = 0
    max_bucket_size: Size64 = -1
    storage: StorageType = StorageType.FILE
    replicas: Int = 1
    placement: Placement | None = None
    compression: bool = False
    metadata: dict[str, str] = field(default_factory=dict)


class KeyValueWords(ObjectStoreWords):
    """A key-value bucket; absent fields have the default of `natsctl kv add`."""

    history: Int = 1
    max_value_size: Size32 = -1
    limit_marker_ttl: Duration = 0
    republish: RePublish | None = None
    mirror: StreamSource | None = None
    sources: list[StreamSource] = field(default_factory=list)


ALIASES = {
    "name": "bucket",
    "max_bytes": "max_bucket_size",
    "num_replicas": "replicas",
    "compressed": "compression",
    "compress": "compression",
    "marker_ttl": "limit_marker_ttl",
    "source": "sources",
}
"""Other names of the fields, from client libraries and flags."""
CONFIG_ALIASES = {"replicas": "num_replicas"}
"""Other names of the fields of streams and consumers: the flag, and the field of buckets."""


Config = dict[str, Any]

WORDS: Final[dict[Kind, type[ObjectStoreWords]]] = {
    Kind.KEY_VALUE: KeyValueWords,
    Kind.OBJECT_STORE: ObjectStoreWords,
}
_FIELDS: Final = {
    "description": "description",
    "max_bucket_size": "max_bytes",
    "max_value_size": "max_msg_size",
    "storage": "storage",
    "replicas": "num_replicas",
    "placement": "placement",
    "republish": "republish",
    "metadata": "metadata",
    "history": "max_msgs_per_subject",
    "ttl": "max_age",
    "limit_marker_ttl": "subject_delete_marker_ttl",
}
"""Bucket fields, each with the stream field that has its value, possibly converted."""
WORD_OF: Final = {field: word for word, field in _FIELDS.items()}
"""Bucket fields by their stream fields."""
_STEPS: Final[dict[Kind, dict[str, Callable[[Config, Any], None]]]] = {
    Kind.KEY_VALUE: {
        "history": asset_config.set_history,
        "ttl": asset_config.set_ttl,
        "limit_marker_ttl": asset_config.set_marker_ttl,
        "mirror": asset_config.set_mirror,
        "sources": asset_config.add_sources,
    },
    Kind.OBJECT_STORE: {"ttl": asset_config.set_ttl},
}
"""Functions that set the bucket fields which affect more than one stream field."""


_ORIGINS: Final = ("mirror", "sources")


class BucketFieldError(ValueError):
    def __init__(self, word: str, reason: str) -> None:
        super().__init__(reason)
        self.word = word


def stream_fields(kind: Kind, words: Mapping[str, Any]) -> Config:
    """Return the configuration of a bucket's stream; `words` have the values of the wire. Raises BucketFieldError."""
    new_bucket = asset_config.new_kv_bucket if kind is Kind.KEY_VALUE else asset_config.new_object_bucket

    word = "bucket"
    try:
        config: Config = new_bucket(str(words.get("bucket", "")))
        for word, value in words.items():
            if word in _ORIGINS and not all(one.get("name") for one in (value if isinstance(value, list) else [value])):
                raise ValueError("the bucket to copy needs its name")
            if word in _STEPS[kind]:
                _STEPS[kind][word](config, value)
            elif word == "compression":
                config["compression"] = "s2" if value else "none"
            elif word in _FIELDS:
                config[_FIELDS[word]] = value
        word = "mirror"
        if kind is Kind.KEY_VALUE:
            asset_config.settle(config)
    except (ValueError, UsageError) as fault:
        raise BucketFieldError(word, str(fault)) from fault
    return config


def bucket_words(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the bucket document, with its `kind`, that makes exactly this stream, or None.

    Labels and the metadata that servers write are ignored.
    """
    name = str(config.get("name", ""))
    kind = Kind.KEY_VALUE if KV.is_mine(name) else Kind.OBJECT_STORE if OBJECTS.is_mine(name) else None
    if kind is None:
        return None
    own = without_server_made(without_labels(config))
    words = _fields_of(kind, own)
    try:
        same = _settled(stream_fields(kind, words)) == _settled(own)
    except (BucketFieldError, msgspec.ValidationError):
        return None
    return {"kind": str(kind), **words} if same else None


def _fields_of(kind: Kind, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bucket fields of a stream that differ from the defaults of a new bucket."""
    bucket = (KV if kind is Kind.KEY_VALUE else OBJECTS).bucket_of(str(config["name"]))
    plain = msgspec.to_builtins(WORDS[kind]())
    words: dict[str, Any] = {"bucket": bucket}
    for word, key in _FIELDS.items():
        value = config.get(key)
        if word in WORDS[kind].__struct_fields__ and value and value != plain.get(word, getattr(WORDS[kind](), word)):
            words[word] = value
    if config.get("compression", "none") != "none":
        words["compression"] = True
    if kind is Kind.KEY_VALUE:
        if config.get("mirror"):
            words["mirror"] = {**config["mirror"], "name": KV.bucket_of(config["mirror"]["name"])}
        if config.get("sources"):
            words["sources"] = [_source_of(source, bucket) for source in config["sources"]]
    return words


def _source_of(source: Mapping[str, Any], bucket: str) -> dict[str, Any]:
    """Return a source with the name of its bucket, without the subject transform that every bucket's source has."""
    origin = KV.bucket_of(source["name"])
    usual = [{"src": f"$KV.{origin}.>", "dest": f"$KV.{bucket}.>"}]
    if source.get("subject_transforms") == usual:
        return {**{key: value for key, value in source.items() if key != "subject_transforms"}, "name": origin}
    return dict(source)


def _settled(config: Mapping[str, Any]) -> StreamConfig:
    """Return the configuration with the server's defaults that are known without a server."""
    typed = msgspec.convert(dict(config), StreamConfig)
    settle(Draft(config=typed))
    return typed
