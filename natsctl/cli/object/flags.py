"""The table of an object bucket's flags: each sets what it means in the stream that the bucket is."""

from __future__ import annotations

from natsctl.cli.bucket_config import compressed, placed_in_cluster, placed_on_tags
from natsctl.cli.flags import (
    COUNT,
    DURATION,
    PAIRS,
    SIZE,
    SWITCH,
    TEXT,
    WORDS,
    Flag,
    choice,
    merged,
    without_defaults,
)
from natsctl.client.objects import config as objects_config

OBJECT_FLAGS: tuple[Flag, ...] = (
    Flag("--description", TEXT, "description", "a description"),
    Flag("--ttl", DURATION, objects_config.set_ttl, "how long objects are kept, 0 for ever", default="0"),
    Flag("--replicas", COUNT, "num_replicas", "number of copies in a cluster", default="1"),
    Flag("--max-bucket-size", SIZE, "max_bytes", "size limit of the bucket, -1 for no limit", default="-1"),
    Flag(
        "--storage",
        choice("file", "memory", f="file", m="memory"),
        "storage",
        "where objects are kept",
        edit=False,
        default="file",
    ),
    Flag("--tags", WORDS, placed_on_tags, "place only on servers with these tags", aliases=("--tag",)),
    Flag("--cluster", TEXT, placed_in_cluster, "place in this cluster"),
    Flag("--metadata", PAIRS, merged("metadata"), "attach a key and value; an empty value removes the key"),
    Flag("--compress", SWITCH, compressed, "compress what is stored"),
)

OBJECT_ADD = tuple(flag for flag in OBJECT_FLAGS if flag.add)
OBJECT_EDIT = without_defaults([flag for flag in OBJECT_FLAGS if flag.edit])

FIELDS = {"ttl": "max_age", "compress": "compression", "tags": "placement.tags", "cluster": "placement.cluster"}
"""A bucket's words for fields of its stream, for --unset."""
