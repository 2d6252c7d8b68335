"""The stream that a key-value bucket is: which fields make it one, and which follow from others. Source: ADR-8."""

from __future__ import annotations

from typing import Any

from natsctl.api.errors import UsageError
from natsctl.client.assets.stream_defaults import CREATED, window_of
from natsctl.client.buckets import KV

MAX_HISTORY = 64


def new_bucket(bucket: str) -> dict[str, Any]:
    """The configuration of a bucket for which nothing was asked. Raises UsageError for a bad name."""
    return {
        "name": KV.stream_of(bucket),
        "subjects": [f"$KV.{bucket}.>"],
        "retention": "limits",
        "storage": "file",
        "max_msgs_per_subject": 1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msg_size": -1,
        "max_consumers": -1,
        "max_age": 0,
        "duplicate_window": window_of(0),
        "num_replicas": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        **CREATED,
    }


def set_history(config: dict[str, Any], values: int) -> None:
    """Keep that many values of each key. Raises ValueError."""
    if not 1 <= values <= MAX_HISTORY:
        raise ValueError(f"a bucket keeps 1 to {MAX_HISTORY} values of a key, not {values}")
    config["max_msgs_per_subject"] = values


def set_ttl(config: dict[str, Any], ns: int) -> None:
    """Let values go after that time, 0 or less for never; the window of duplicates can not be longer."""
    config["max_age"] = max(0, ns)
    config["duplicate_window"] = window_of(ns)


def set_marker_ttl(config: dict[str, Any], ns: int) -> None:
    """Keep the markers of keys whose time is over for so long, and let keys have a time to live; 0 keeps none."""
    if ns > 0:
        config["allow_msg_ttl"] = True
        config["subject_delete_marker_ttl"] = ns
    else:
        config.pop("subject_delete_marker_ttl", None)


def set_mirror(config: dict[str, Any], mirror: dict[str, Any]) -> None:
    """Make the bucket a copy of another one, which then takes its writes."""
    config["mirror"] = {**(config.get("mirror") or {}), **mirror, "name": _stream(mirror["name"])}
    config["mirror_direct"] = True
    config.pop("subjects", None)


def set_mirror_domain(config: dict[str, Any], domain: str) -> None:
    """Find the bucket that is mirrored in another domain."""
    config["mirror"] = {**(config.get("mirror") or {}), "external": {"api": f"$JS.{domain}.API"}}


def add_sources(config: dict[str, Any], sources: list[dict[str, Any]]) -> None:
    """Take in the keys of other buckets, as keys of this one; one that is there already is replaced."""
    bucket = KV.bucket_of(config["name"])
    new = {}
    for source in sources:
        origin = KV.bucket_of(source["name"])
        wanted = {**source, "name": _stream(origin)}
        if source.get("subject_transforms"):
            # Whoever says how subjects map may take in any stream.
            wanted["name"] = source["name"]
        elif source.get("external") is None or origin != bucket:
            wanted["subject_transforms"] = [{"src": f"$KV.{origin}.>", "dest": f"$KV.{bucket}.>"}]
        new[wanted["name"]] = wanted
    there = {one["name"]: one for one in config.get("sources") or ()}
    config["sources"] = list({**there, **new}.values())


def drop_mirror(config: dict[str, Any]) -> None:
    """Make a mirror a bucket of its own, which takes writes itself."""
    config.pop("mirror", None)
    settle(config)


def settle(config: dict[str, Any]) -> None:
    """Give a bucket that is no mirror (any more) subjects of its own; UsageError for what excludes each other."""
    mirror = config.get("mirror")
    if mirror is None and not config.get("subjects"):
        config["mirror_direct"] = False
        config["subjects"] = [f"$KV.{KV.bucket_of(config['name'])}.>"]
    if mirror and config.get("sources"):
        raise UsageError("a mirror has no sources: --mirror and --source exclude each other")
    if mirror and not mirror.get("name"):
        raise UsageError("--mirror-domain says where the bucket of --mirror is: give both")
    republish = config.get("republish")
    if republish and not republish.get("dest"):
        raise UsageError("a destination is needed to publish again: give --republish-destination")


def _stream(bucket: str) -> str:
    """The stream of a bucket that may be named either way."""
    return KV.stream_of(KV.bucket_of(bucket))
