"""What a stream configuration becomes, and which ones are refused. Source: server_api.md part 3.2.

`normalise` fills in defaults in place, `check` refuses; the order of checks is that of the reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any, Final

import msgspec

from natsctl.api.catalogue import ApiError, error
from natsctl.api.stream import DiscardPolicy, PersistMode, Placement, RetentionPolicy, StreamConfig
from natsctl.api.subjects import MAX_NAME, is_subset, is_valid_name, is_valid_subject, overlaps
from natsctl.api.units import MILLISECOND, MINUTE, format_duration

DEFAULT_DUPLICATE_WINDOW_NS: Final = 2 * MINUTE
MIN_AGE_NS: Final = 100 * MILLISECOND
MAX_DESCRIPTION_BYTES: Final = 4096
MAX_METADATA_BYTES: Final = 128 * 1024
MAX_REPLICAS: Final = 5

_UNLIMITED: Final = ("max_consumers", "max_msgs", "max_bytes", "max_msgs_per_subject", "max_msg_size")

_ABSENT: Final = (
    ("mirror", "mirrors are"),
    ("sources", "sources are"),
    ("republish", "republish is"),
    ("subject_transform", "subject transforms are"),
    ("subject_delete_marker_ttl", "subject delete markers are"),
    ("allow_msg_counter", "message counters are"),
    ("allow_atomic", "atomic batch publishing is"),
    ("allow_batched", "batch publishing is"),
    ("allow_msg_schedules", "message schedules are"),
)
"""Features that this server does not have: a configuration that asks for one is refused, never silently reduced."""


def copy(config: StreamConfig) -> StreamConfig:
    """Return an independent copy."""
    return msgspec.convert(msgspec.to_builtins(config), StreamConfig)


def invalid(text: str) -> ApiError:
    """Return the error of a configuration that is refused."""
    return error(10052, err=text)


def normalise(config: StreamConfig, max_window_ns: int = 0, pedantic: bool = False) -> ApiError | None:
    """Fill in defaults in place; with `pedantic`, return the error for the first value that would not be kept."""
    for name, value, text in _corrections(config, max_window_ns):
        if pedantic and text:
            return error(10157, err=text)
        setattr(config, name, value)
    if not config.subjects and config.mirror is None and not config.sources:
        config.subjects = [config.name]
    if config.placement == Placement():
        config.placement = None
    return None


def _corrections(config: StreamConfig, max_window_ns: int) -> Iterator[tuple[str, Any, str]]:
    """Yield field, value and, where a pedantic request is refused for it, the text."""
    if config.num_replicas == 0:
        yield "num_replicas", 1, ""
    for name in _UNLIMITED:
        value = getattr(config, name)
        if value == 0:
            yield name, -1, ""
        elif value < -1:
            yield name, -1, f"{name} must be set to -1"
    if not config.duplicate_window and config.mirror is None and not config.sources:
        window_ns = min(DEFAULT_DUPLICATE_WINDOW_NS, max_window_ns or DEFAULT_DUPLICATE_WINDOW_NS)
        yield "duplicate_window", min(window_ns, config.max_age) if config.max_age > 0 else window_ns, ""
    if config.allow_msg_ttl:
        # Clients set it on every key-value bucket. Dropped, as a 2.10 server drops a key that it does not know, and
        # visible as absent in the answer; a message that asks for a time to live is refused (10166), never kept longer.
        yield "allow_msg_ttl", False, "allow_msg_ttl must be set to false"


def seal(config: StreamConfig) -> None:
    """Set what being sealed means."""
    config.max_age = 0
    config.discard = DiscardPolicy.NEW
    config.deny_delete = config.deny_purge = True
    config.allow_rollup_hdrs = False


def check(config: StreamConfig, max_window_ns: int = 0) -> ApiError | None:
    """Return why a normalised configuration is refused, or None."""
    for step in (_check_name, _check_size, _check_absent, _check_replicas, _check_limits):
        refusal = step(config)
        if refusal is not None:
            return refusal
    return _check_window(config, max_window_ns) or _check_subjects(config)


def _check_name(config: StreamConfig) -> ApiError | None:
    if len(config.name) > MAX_NAME:
        return invalid(f"stream name is too long, maximum allowed is {MAX_NAME}")
    if not is_valid_name(config.name):
        return invalid("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    return None


def _check_size(config: StreamConfig) -> ApiError | None:
    if len(config.description.encode()) > MAX_DESCRIPTION_BYTES:
        return invalid(f"stream description is too long, maximum allowed is {MAX_DESCRIPTION_BYTES}")
    if sum(len(k.encode()) + len(v.encode()) for k, v in config.metadata.items()) > MAX_METADATA_BYTES:
        return invalid(f"stream metadata exceeds maximum size of {MAX_METADATA_BYTES} bytes")
    return None


def _check_absent(config: StreamConfig) -> ApiError | None:
    for name, text in _ABSENT:
        if getattr(config, name):
            return invalid(f"{text} not supported by this server ({name})")
    if config.persist_mode is PersistMode.ASYNC:
        return invalid("asynchronous persistence is not supported by this server (persist_mode)")
    return invalid("stream has no mirror but does have mirror direct") if config.mirror_direct else None


def _check_replicas(config: StreamConfig) -> ApiError | None:
    if config.num_replicas < 0:
        return error(10133)
    if config.num_replicas > MAX_REPLICAS:
        return invalid(f"maximum replicas is {MAX_REPLICAS}")
    return None


def _check_limits(config: StreamConfig) -> ApiError | None:
    if config.max_age < 0:
        return invalid("max age can not be negative")
    if 0 < config.max_age < MIN_AGE_NS:
        return invalid("max age needs to be >= 100ms")
    if config.deny_purge and config.allow_rollup_hdrs:
        return invalid("roll-ups require the purge permission")
    if config.discard_new_per_subject:
        if config.discard is not DiscardPolicy.NEW:
            return invalid("discard new per subject requires discard new policy to be set")
        if config.max_msgs_per_subject <= 0:
            return invalid("discard new per subject requires max msgs per subject > 0")
    if config.placement is not None and config.placement.preferred:
        return invalid("preferred server not permitted in placement")
    return None


def _check_window(config: StreamConfig, max_window_ns: int) -> ApiError | None:
    window_ns = config.duplicate_window
    if window_ns < 0:
        return invalid("duplicates window can not be negative")
    if 0 < config.max_age < window_ns:
        return invalid("duplicates window can not be larger then max age")
    if 0 < max_window_ns < window_ns:
        return invalid(f"duplicates window can not be larger then server limit of {format_duration(max_window_ns)}")
    if 0 < window_ns < MIN_AGE_NS:
        return invalid("duplicates window needs to be >= 100ms")
    return None


def _check_subjects(config: StreamConfig) -> ApiError | None:
    subjects = config.subjects
    for subject in subjects:
        refusal = _check_subject(config, subject)
        if refusal is not None:
            return refusal
    for first, second in combinations(subjects, 2):
        if overlaps(first, second):
            return invalid(f'subject "{first}" overlaps with "{second}"')
    return None


def _check_subject(config: StreamConfig, subject: str) -> ApiError | None:
    if not is_valid_subject(subject):
        return invalid("invalid subject")
    if subject == ">":
        if not config.no_ack:
            return invalid("capturing all subjects requires no-ack to be true")
        return invalid("capturing all subjects requires replicas of 1") if config.num_replicas > 1 else None
    if config.no_ack:
        return None
    api = any(overlaps(subject, space) for space in ("$JS.>", "$JSC.>", "$NRG.>"))
    if api and not is_subset(subject, "$JS.EVENT.>"):
        return invalid("subjects that overlap with jetstream api require no-ack to be true")
    if overlaps(subject, "$SYS.>") and not is_subset(subject, "$SYS.ACCOUNT.>"):
        return invalid("subjects that overlap with system api require no-ack to be true")
    return None


def check_update(old: StreamConfig, new: StreamConfig) -> ApiError | None:
    """Return why the change from `old` to `new`, both normalised, is refused, or None. Source: server_api.md 3.3."""
    queue = RetentionPolicy.WORKQUEUE
    for refused, text in (
        (old.storage is not new.storage, "stream configuration update can not change storage type"),
        (
            old.retention is not new.retention and queue in (old.retention, new.retention),
            "stream configuration update can not change retention policy to/from workqueue",
        ),
        (old.sealed and not new.sealed, "stream configuration update can not unseal a sealed stream"),
        (
            old.deny_delete and not new.deny_delete,
            "stream configuration update can not cancel deny message deletes",
        ),
        (old.deny_purge and not new.deny_purge, "stream configuration update can not cancel deny purge"),
    ):
        if refused:
            return invalid(text)
    return None
