"""What documents speak of: streams and consumers, and the buckets that are streams of a certain form."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

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
        """The kind that its name implies."""
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


class Place(NamedTuple):
    """A location in a document; `path` is `$.streams[0].max_age`, `line` counts from 1, 0 is unknown."""

    file: str
    line: int = 0
    path: str = "$"

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        return f"{self.file}{line}: {self.path}"
