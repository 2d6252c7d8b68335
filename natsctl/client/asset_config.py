"""Configurations of new streams and buckets, and the settings of buckets as fields of their streams."""

from __future__ import annotations

from collections.abc import Mapping

from natsctl.api.errors import UsageError
from natsctl.api.units import MINUTE
from natsctl.client.buckets import KV, OBJECTS
from natsctl.hints import Any, Final

WINDOW_NS: Final = 2 * MINUTE
LIMITS: Final = ("max_consumers", "max_msgs", "max_bytes", "max_msgs_per_subject", "max_msg_size")
"""Fields where 0 and absent mean no limit (-1 from servers)."""

DEFAULTS: Final[dict[str, Any]] = {
    "retention": "limits",
    "discard": "old",
    "storage": "file",
    "compression": "none",
    "num_replicas": 1,
    "max_age": 0,
}
CREATED: Final[dict[str, Any]] = {"allow_direct": True}
"""Fields of a new stream that natsctl, like nats, sets to values other than the server's defaults."""

OWNER: Final = "natsctl.owner"
"""The owner of the documents that made the asset or changed it last."""
PROTECT: Final = "natsctl.protect"
"""Says "true" where the asset may be neither removed nor replaced."""
CREATOR: Final = "natsctl.creator"
"""The owner that created the asset: only its documents prune and destroy it.

An asset that was taken over has the creator that it had, or none: it is adopted, and removed only by name."""
LABELS: Final = (OWNER, PROTECT, CREATOR)
"""Metadata keys that link assets to documents; a copy under another name does not have them."""


def new_stream(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration for creating a stream: `config` and the defaults of absent fields.

    A field given as None counts as left out.
    """
    given = {name: value for name, value in config.items() if value is not None}
    return given | {name: value for name, value in CREATED.items() if name not in given}


def settled(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration that `wanted` makes of `live`: defaults for removed fields, all else unchanged."""
    full = normalised(wanted)
    for name in live.keys() | full.keys():
        if wanted.get(name) == live.get(name):
            full.pop(name, None)
            full |= {name: live[name]} if name in live else {}
    order = [*live, *(name for name in full if name not in live)]
    return {name: full[name] for name in order if name in full}


def normalised(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration as a server keeps it; other fields stay as they are."""
    kept = {**config}
    for name, value in DEFAULTS.items():
        kept[name] = kept.get(name) or value
    for name in LIMITS:
        kept[name] = kept.get(name) or -1
    if not kept.get("duplicate_window") and not kept.get("mirror") and not kept.get("sources"):
        kept["duplicate_window"] = window_of(int(kept["max_age"]))
    return kept


def window_of(max_age_ns: int) -> int:
    """Return the default duplicate window in ns: two minutes, but never longer than `max_age_ns`."""
    return min(WINDOW_NS, max_age_ns) if max_age_ns > 0 else WINDOW_NS


MAX_HISTORY = 64


def new_kv_bucket(bucket: str) -> dict[str, Any]:
    """Return the default configuration of a bucket. Raises UsageError for a bad name."""
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
    """Set how long values or objects are kept, 0 or less for no limit; the duplicate window cannot be longer."""
    config["max_age"] = max(0, ns)
    config["duplicate_window"] = window_of(ns)


def set_marker_ttl(config: dict[str, Any], ns: int) -> None:
    """Keep the markers of expired keys for that time, and allow a time to live of keys; 0 keeps none."""
    if ns > 0:
        config["allow_msg_ttl"] = True
        config["subject_delete_marker_ttl"] = ns
    else:
        config.pop("subject_delete_marker_ttl", None)


def set_mirror(config: dict[str, Any], mirror: dict[str, Any]) -> None:
    """Make the bucket a mirror of another one; that one then receives its writes."""
    config["mirror"] = {**(config.get("mirror") or {}), **mirror, "name": _stream(mirror["name"])}
    config["mirror_direct"] = True
    config.pop("subjects", None)


def set_mirror_domain(config: dict[str, Any], domain: str) -> None:
    config["mirror"] = {**(config.get("mirror") or {}), "external": {"api": f"$JS.{domain}.API"}}


def add_sources(config: dict[str, Any], sources: list[dict[str, Any]]) -> None:
    """Source the keys of other buckets as keys of this one; an existing source of the same bucket is replaced."""
    bucket = KV.bucket_of(config["name"])
    new = {}
    for source in sources:
        origin = KV.bucket_of(source["name"])
        wanted = {**source, "name": _stream(origin)}
        if source.get("subject_transforms"):
            # A source with its own subject transforms may be any stream.
            wanted["name"] = source["name"]
        elif source.get("external") is None or origin != bucket:
            wanted["subject_transforms"] = [{"src": f"$KV.{origin}.>", "dest": f"$KV.{bucket}.>"}]
        new[wanted["name"]] = wanted
    there = {one["name"]: one for one in config.get("sources") or ()}
    config["sources"] = list({**there, **new}.values())


def drop_mirror(config: dict[str, Any]) -> None:
    """Turn a mirror into an ordinary bucket that accepts writes itself."""
    config.pop("mirror", None)
    settle(config)


def settle(config: dict[str, Any]) -> None:
    """Set the subjects of a bucket that is no mirror (any more).

    Raises UsageError for options that exclude each other.
    """
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
    """Return the stream of a bucket that may be named either way."""
    return KV.stream_of(KV.bucket_of(bucket))


def new_object_bucket(bucket: str) -> dict[str, Any]:
    """Return the default configuration of a bucket. Raises UsageError for a bad name."""
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
