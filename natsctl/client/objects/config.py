"""The stream that an object bucket is: which fields make it one. Source: ADR-20."""

from __future__ import annotations

from typing import Any

from natsctl.client.assets.stream_defaults import CREATED, window_of
from natsctl.client.buckets import OBJECTS


def new_bucket(bucket: str) -> dict[str, Any]:
    """The configuration of a bucket for which nothing was asked. Raises UsageError for a bad name."""
    return {
        "name": OBJECTS.stream_of(bucket),
        "subjects": [f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"],
        "retention": "limits",
        "storage": "file",
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msg_size": -1,
        "max_consumers": -1,
        "max_msgs_per_subject": -1,
        "max_age": 0,
        "duplicate_window": window_of(0),
        "num_replicas": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        **CREATED,
    }


def set_ttl(config: dict[str, Any], ns: int) -> None:
    """Let objects go after that time, 0 or less for never; the window of duplicates can not be longer."""
    config["max_age"] = max(0, ns)
    config["duplicate_window"] = window_of(ns)
