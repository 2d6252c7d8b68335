"""The table of a key-value bucket's flags: each sets what it means in the stream that the bucket is."""

from __future__ import annotations

from typing import Any

from natsctl.cli.bucket_config import compressed, placed_in_cluster, placed_on_tags
from natsctl.cli.flags import (
    COUNT,
    DURATION,
    MESSAGE_SIZE,
    ON,
    PAIRS,
    SIZE,
    SOURCE,
    SOURCES,
    SUBJECT,
    SWITCH,
    TEXT,
    WHOLE,
    WORDS,
    Config,
    Flag,
    Kind,
    choice,
    merged,
    removed,
    without_defaults,
)
from natsctl.client.kv import config as kv_config


def _history(text: str) -> int:
    values = WHOLE.read(text)
    kv_config.set_history({}, values)
    return int(values)


def _no_mirror(config: Config, value: Any) -> None:
    if value:
        kv_config.drop_mirror(config)


HISTORY = Kind("N", _history)
KV_FLAGS: tuple[Flag, ...] = (
    Flag("--description", TEXT, "description", "a description"),
    Flag("--history", HISTORY, kv_config.set_history, "values kept for each key, 1 to 64", default="1"),
    Flag(
        "--storage",
        choice("file", "memory", f="file", m="memory"),
        "storage",
        "where values are kept",
        edit=False,
        default="file",
    ),
    Flag("--ttl", DURATION, kv_config.set_ttl, "how long values are kept, 0 for ever", default="0"),
    Flag(
        "--marker-ttl",
        DURATION,
        kv_config.set_marker_ttl,
        "allow keys with a time to live, and keep markers of expired keys this long",
    ),
    Flag("--replicas", COUNT, "num_replicas", "number of copies in a cluster", default="1"),
    Flag(
        "--max-value-size",
        MESSAGE_SIZE,
        "max_msg_size",
        "largest value accepted, -1 for no limit",
        default="-1",
    ),
    Flag("--max-bucket-size", SIZE, "max_bytes", "size limit of the bucket, -1 for no limit", default="-1"),
    Flag("--tags", WORDS, placed_on_tags, "place only on servers with these tags", aliases=("--tag",)),
    Flag("--cluster", TEXT, placed_in_cluster, "place in this cluster"),
    Flag("--compress", SWITCH, compressed, "compress what is stored"),
    Flag("--metadata", PAIRS, merged("metadata"), "attach a key and value; an empty value removes the key"),
    Flag("--republish-source", SUBJECT, "republish.src", "subjects to republish after storing"),
    Flag("--republish-destination", SUBJECT, "republish.dest", "subject to republish to"),
    Flag("--republish-headers", SWITCH, "republish.headers_only", "republish without values"),
    Flag("--no-republish", ON, removed("republish"), "stop republishing", add=False),
    Flag("--mirror", SOURCE, kv_config.set_mirror, "mirror this bucket; writes go there", edit=False),
    Flag("--mirror-domain", TEXT, kv_config.set_mirror_domain, "the domain of the bucket to copy", edit=False),
    Flag("--no-mirror", ON, _no_mirror, "turn a mirror into an independent bucket", add=False),
    Flag("--source", SOURCES, kv_config.add_sources, "also copy the keys of this bucket"),
)

KV_ADD = tuple(flag for flag in KV_FLAGS if flag.add)
KV_EDIT = without_defaults([flag for flag in KV_FLAGS if flag.edit])

FIELDS = {
    "ttl": "max_age",
    "marker-ttl": "subject_delete_marker_ttl",
    "history": "max_msgs_per_subject",
    "compress": "compression",
    "tags": "placement.tags",
    "cluster": "placement.cluster",
    "source": "sources",
    "mirror-domain": "mirror.external",
}
"""A bucket's words for fields of its stream, for --unset."""
