"""The plain fields of a stream configuration: names, sizes, limits, window, subjects, placement.

Each check corrects its fields in place and returns why they are refused.
Source: docs/compatibility.md#stream-configuration.
"""

from __future__ import annotations

from typing import Final

from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import go_quote
from natsctl.api.config.stream_draft import Draft, invalid, pedantry
from natsctl.api.err_codes import ErrCode
from natsctl.api.stream import DiscardPolicy, Placement, StreamConfig
from natsctl.api.subjects import MAX_NAME, is_asset_name, is_subset, is_valid_subject, overlaps
from natsctl.api.units import MILLISECOND, MINUTE, format_duration

DEFAULT_DUPLICATE_WINDOW_NS: Final = 2 * MINUTE
MIN_AGE_NS: Final = 100 * MILLISECOND
MAX_DESCRIPTION_BYTES: Final = 4096
MAX_METADATA_BYTES: Final = 128 * 1024
MAX_REPLICAS: Final = 5

_UNLIMITED: Final = ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers")


def check_name(draft: Draft) -> ApiError | None:
    """Refuse names that can be no token."""
    name = draft.config.name
    if not is_asset_name(name):
        return invalid("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if "\0" in name:  # nats-server finds no file name for it
        return error(ErrCode.STREAM_CREATE, err="error creating store for stream")
    if len(name.encode()) > MAX_NAME:
        return invalid(f"stream name is too long, maximum allowed is {MAX_NAME}")
    return None


def check_size(draft: Draft) -> ApiError | None:
    """Refuse what people write when it is too much of it."""
    config = draft.config
    if len(config.description.encode()) > MAX_DESCRIPTION_BYTES:
        return invalid(f"stream description is too long, maximum allowed is {MAX_DESCRIPTION_BYTES}")
    if sum(len(k.encode()) + len(v.encode()) for k, v in config.metadata.items()) > MAX_METADATA_BYTES:
        return invalid(f"stream metadata exceeds maximum size of {MAX_METADATA_BYTES} bytes")
    return None


def settle_replicas(draft: Draft) -> ApiError | None:
    """Make no replicas one."""
    config = draft.config
    config.num_replicas = config.num_replicas or 1
    if config.num_replicas > MAX_REPLICAS:
        return invalid(f"maximum replicas is {MAX_REPLICAS}")
    return error(ErrCode.REPLICAS_COUNT_CANNOT_BE_NEGATIVE) if config.num_replicas < 0 else None


def settle_limits(draft: Draft) -> ApiError | None:
    """Make every limit that limits nothing -1."""
    for name in _UNLIMITED:
        value = getattr(draft.config, name)
        if value < -1 and draft.pedantic:
            return pedantry(f"{name} must be set to -1")
        if value == 0 or value < -1:
            setattr(draft.config, name, -1)
    return None


def check_age(draft: Draft) -> ApiError | None:
    """Refuse ages that expiry cannot keep."""
    if draft.config.max_age < 0:
        return invalid("max age can not be negative")
    return invalid("max age needs to be >= 100ms") if 0 < draft.config.max_age < MIN_AGE_NS else None


def settle_window(draft: Draft) -> ApiError | None:
    """Give a stream that clients publish to a duplicate window."""
    config, most_ns = draft.config, draft.max_window_ns
    if not config.duplicate_window and config.mirror is None and not config.sources:
        refusal = _default_window(draft)
        if refusal is not None:
            return refusal
    window_ns = config.duplicate_window
    if window_ns < 0:
        return invalid("duplicates window can not be negative")
    if 0 < config.max_age < window_ns:
        return invalid("duplicates window can not be larger then max age")
    if 0 < most_ns < window_ns:
        return invalid(f"duplicates window can not be larger then server limit of {format_duration(most_ns)}")
    if 0 < window_ns < MIN_AGE_NS:
        return invalid("duplicates window needs to be >= 100ms")
    return None


def _default_window(draft: Draft) -> ApiError | None:
    config, window_ns = draft.config, DEFAULT_DUPLICATE_WINDOW_NS
    if 0 < draft.max_window_ns < window_ns:
        if draft.pedantic:
            return pedantry("duplicate window limits are higher than current limits")
        window_ns = draft.max_window_ns
    if 0 < config.max_age < window_ns:
        if draft.pedantic:
            return pedantry("duplicate window cannot be bigger than max age")
        window_ns = config.max_age
    config.duplicate_window = window_ns
    return None


def check_rollups(draft: Draft) -> ApiError | None:
    """Refuse roll-ups where nothing may be purged."""
    both = draft.config.deny_purge and draft.config.allow_rollup_hdrs
    return invalid("roll-ups require the purge permission") if both else None


def check_discard_per_subject(draft: Draft) -> ApiError | None:
    """Refuse discard per subject without what it depends on."""
    config = draft.config
    if config.discard_new_per_subject:
        if config.discard is not DiscardPolicy.NEW:
            return invalid("discard new per subject requires discard new policy to be set")
        if config.max_msgs_per_subject <= 0:
            return invalid("discard new per subject requires max msgs per subject > 0")
    return None


def settle_subjects(draft: Draft) -> ApiError | None:
    """Set the subjects to the stream's name where subjects, mirror and sources are absent."""
    config = draft.config
    if not config.subjects and config.mirror is None and not config.sources:
        config.subjects = [config.name]
        return None
    seen: set[str] = set()
    for index, subject in enumerate(config.subjects):
        if not is_valid_subject(subject):
            return invalid("invalid subject")
        if subject in seen:
            return invalid("duplicate subjects detected")
        refusal = _check_space(config, subject)
        if refusal is not None:
            return refusal
        other = next((other for other in config.subjects[index + 1 :] if overlaps(other, subject)), None)
        if other is not None:
            return invalid(f"subject {go_quote(subject)} overlaps with {go_quote(other)}")
        seen.add(subject)
    return None


def _check_space(config: StreamConfig, subject: str) -> ApiError | None:
    """Refuse to acknowledge what the server itself says."""
    if config.no_ack:
        wide = subject == ">" and config.num_replicas != 1
        return invalid("capturing all subjects requires replicas of 1") if wide else None
    if subject == ">":
        return invalid("capturing all subjects requires no-ack to be true")
    api = any(overlaps(subject, space) for space in ("$JS.>", "$JSC.>", "$NRG.>"))
    if api and not is_subset(subject, "$JS.EVENT.>"):
        return invalid("subjects that overlap with jetstream api require no-ack to be true")
    if overlaps(subject, "$SYS.>") and not is_subset(subject, "$SYS.ACCOUNT.>"):
        return invalid("subjects that overlap with system api require no-ack to be true")
    return None


def check_bytes(draft: Draft) -> ApiError | None:
    """Refuse what the account does not allow one stream to hold."""
    return draft.refuse_bytes(draft.config)


def settle_placement(draft: Draft) -> ApiError | None:
    """Drop a placement that says nothing."""
    config = draft.config
    if config.placement == Placement():
        config.placement = None
    if config.placement is not None and config.placement.preferred:
        return invalid("preferred server not permitted in placement")
    return None
