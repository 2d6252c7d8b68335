"""The words of buckets: what key-value buckets and object stores call the fields of their streams."""

from __future__ import annotations

from msgspec import field

from natsctl.api.model import Duration, Int, Model, Size32, Size64
from natsctl.api.stream import Placement, RePublish, StorageType, StreamSource


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
"""Other names of the same fields, in client libraries and flags."""
