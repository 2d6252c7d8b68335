"""Normalisation and validation of consumer configurations, and the fields that an update may change.

`normalise` sets the defaults in the config that it is given: callers pass a `copy`, so that a refusal changes nothing.
`CHECKS` has nats-server's order, so the same one of two mistakes is reported. A refused change is error 10012 with the
text of the first field that may not change, a deliver subject in use is 10013. Source:
docs/compatibility.md#consumer-configuration and docs/compatibility.md#consumer-updates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Final, NamedTuple, TypeAlias

import msgspec

from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import go_quote
from natsctl.api.consumer import AckPolicy, ConsumerConfig, DeliverPolicy, PriorityPolicy
from natsctl.api.errors import ErrCode
from natsctl.api.model import INT64_MAX
from natsctl.api.stream import RetentionPolicy, StreamConfig
from natsctl.api.subject_index import STEP, Steps, cost_of, finish, first_covered, subject_pieces
from natsctl.api.subjects import has_wildcard, is_asset_name, is_subset, is_valid_subject
from natsctl.api.times import is_zero, parse_time
from natsctl.api.units import MILLISECOND, MINUTE, SECOND, format_duration

DEFAULT_MAX_WAITING: Final = 512
DEFAULT_ACK_WAIT_NS: Final = 30 * SECOND
DEFAULT_MAX_ACK_PENDING: Final = 1000
DEFAULT_INACTIVE_THRESHOLD_NS: Final = 5 * SECOND
DEFAULT_PIN_NS: Final = 2 * MINUTE
FLOW_CONTROL_HEARTBEAT_NS: Final = SECOND
"""The only idle heartbeat nats-server allows if acks are flow control answers."""
MIN_HEARTBEAT_NS: Final = 100 * MILLISECOND
MAX_DESCRIPTION_BYTES: Final = 4096
MAX_METADATA_BYTES: Final = 128 * 1024

_MINIMA: Final = (
    ("max_waiting", 0),
    ("max_ack_pending", -1),
    ("max_batch", 0),
    ("max_expires", 0),
    ("max_bytes", 0),
    ("idle_heartbeat", 0),
    ("inactive_threshold", 0),
    ("priority_timeout", 0),
)
"""Fields with their minimum; lower values are raised to it."""


class ConsumerBounds(NamedTuple):
    """Limits of the server and the account; 0 for no limit."""

    max_ack_pending: int = 0
    max_request_batch: int = 0
    server_max_ack_pending: int = 0


def filters_of(config: ConsumerConfig) -> list[str]:
    """Return the filter subjects of a config, whichever field holds them."""
    return [config.filter_subject] if config.filter_subject else list(config.filter_subjects)


def copy(config: ConsumerConfig) -> ConsumerConfig:
    """Return an independent copy."""
    return msgspec.convert(msgspec.to_builtins(config), ConsumerConfig)


def needs_ack(config: ConsumerConfig) -> bool:
    """Return whether deliveries wait for acks."""
    return config.ack_policy is not AckPolicy.NONE


def is_durable(config: ConsumerConfig) -> bool:
    """Return whether the consumer is durable: kept while no client uses it, unless it has an inactive threshold."""
    return bool(config.durable_name)


def pause_until_ns(config: ConsumerConfig) -> int:
    """Return the end of the consumer's pause, ns since the epoch; 0 if it is not paused."""
    return 0 if is_zero(config.pause_until) else parse_time(config.pause_until or "")


def sample_percent(config: ConsumerConfig) -> int:
    """Return the percentage of sampled acks."""
    return min(int(config.sample_freq.removesuffix("%") or 0), 100)


def normalise(
    config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds, pedantic: bool = False
) -> ApiError | None:
    """Fill in defaults in place; with `pedantic`, return the error for the first value that would be corrected."""
    text = raise_to_minimum(config, pedantic) or _default_acks(config, stream, bounds, pedantic)
    if text:
        return error(ErrCode.PEDANTIC, err=text)
    if not config.deliver_subject and not config.max_batch and bounds.max_request_batch > 0:
        if pedantic:
            return error(ErrCode.PEDANTIC, err="max_request_batch must be set if it's JetStream limits are set")
        config.max_batch = bounds.max_request_batch
    if config.priority_policy is PriorityPolicy.NONE:
        config.priority_policy = None
    if config.priority_policy is PriorityPolicy.PINNED_CLIENT:
        config.priority_timeout = config.priority_timeout or DEFAULT_PIN_NS
    if config.ack_policy is AckPolicy.FLOW_CONTROL and not pedantic:
        config.flow_control, config.idle_heartbeat = True, FLOW_CONTROL_HEARTBEAT_NS
    if config.deliver_policy is DeliverPolicy.UNDEFINED:
        config.deliver_policy = DeliverPolicy.ALL
    return None


def raise_to_minimum(config: ConsumerConfig, pedantic: bool) -> str:
    """Raise values below their minimum; return the refusal of a pedantic request, or ""."""
    if pedantic and config.max_deliver < -1:
        return "max_deliver must be set to -1"
    if config.max_deliver == 0 or config.max_deliver < -1:
        config.max_deliver = -1
    for name, least in _MINIMA:
        if getattr(config, name) < least:
            if pedantic:
                return f"{name} must be set to -1" if least else f"{name} must not be negative"
            setattr(config, name, least)
    if not config.deliver_subject:
        config.max_waiting = config.max_waiting or DEFAULT_MAX_WAITING
    return ""


def _default_acks(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds, pedantic: bool) -> str:
    """Set the defaults of acks and inactivity; return the refusal of a pedantic request, or ""."""
    limits = stream.consumer_limits
    if config.ack_policy in (AckPolicy.EXPLICIT, AckPolicy.ALL):
        config.ack_wait = config.ack_wait or DEFAULT_ACK_WAIT_NS
    if config.backoff:
        if pedantic and config.ack_wait != config.backoff[0]:
            return "first backoff value has to equal batch AckWait"
        config.ack_wait = config.backoff[0]
    for name in ("max_ack_pending", "inactive_threshold"):
        if not getattr(config, name):
            if pedantic and getattr(limits, name) > 0:
                return f"{name} must be set if it's configured in stream limits"
            setattr(config, name, getattr(limits, name))
    if not config.max_ack_pending and needs_ack(config):
        upper = (each for each in (bounds.server_max_ack_pending, bounds.max_ack_pending) if each > 0)
        config.max_ack_pending = min((DEFAULT_MAX_ACK_PENDING, *upper))
    return ""


def default_threshold(config: ConsumerConfig, durable: bool) -> None:
    """Set the default inactive threshold of an ephemeral consumer; in an update `durable` is the existing one's."""
    if not durable and config.inactive_threshold <= 0:
        config.inactive_threshold = DEFAULT_INACTIVE_THRESHOLD_NS


_BAD_NAME: Final = "can not contain '.', '*', '>', '\\', '/'"
_GROUP_NAME: Final = re.compile(r"[a-zA-Z0-9/_=-]{1,16}")

Check: TypeAlias = "Callable[[ConsumerConfig, StreamConfig, ConsumerBounds], ApiError | Steps[ApiError | None] | None]"


def check(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    """Do what `checking` does in one go."""
    return finish(checking(config, stream, bounds))


def checking(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> Steps[ApiError | None]:
    """Return why a normalised config is refused, or None."""
    for step in CHECKS:
        refusal = step(config, stream, bounds)
        if isinstance(refusal, Generator):
            refusal = yield from refusal
        if refusal is not None:
            return refusal
    return None


def _check_names(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    if config.name and not is_asset_name(config.name):
        return error(ErrCode.STREAM_INVALID_CONFIG, err=f"consumer name {_BAD_NAME}")
    if config.durable_name and not is_asset_name(config.durable_name):
        return error(ErrCode.STREAM_INVALID_CONFIG, err=f"consumer durable name {_BAD_NAME}")
    return None


def _check_replicas(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    if config.num_replicas > stream.num_replicas:
        return error(ErrCode.CONSUMER_REPLICAS_EXCEEDS_STREAM)
    if config.num_replicas < 0:
        return error(ErrCode.REPLICAS_COUNT_CANNOT_BE_NEGATIVE)
    if stream.retention is not RetentionPolicy.LIMITS and config.num_replicas not in (0, stream.num_replicas):
        return error(ErrCode.CONSUMER_REPLICAS_SHOULD_MATCH_STREAM)
    return None


def _check_waits(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    if config.backoff and min(config.backoff) < 0:
        return error(ErrCode.CONSUMER_BACK_OFF_NEGATIVE)
    return error(ErrCode.CONSUMER_ACK_WAIT_NEGATIVE) if config.ack_wait < 0 else None


def _check_flow_acks(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    """Return the error of ack policy flow_control: it needs flow control, and excludes the settings of other acks."""
    if config.ack_policy is not AckPolicy.FLOW_CONTROL:
        return None
    if not config.deliver_subject:
        return error(ErrCode.CONSUMER_ACK_FC_REQUIRES_PUSH)
    if not config.flow_control:
        return error(ErrCode.CONSUMER_ACK_FC_REQUIRES_FC)
    if config.idle_heartbeat != FLOW_CONTROL_HEARTBEAT_NS:
        return error(ErrCode.STREAM_INVALID_CONFIG, err="flow control ack policy heartbeat needs to be 1s")
    if config.max_ack_pending <= 0:
        return error(ErrCode.CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING)
    if config.ack_wait or config.backoff:
        return error(ErrCode.CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT)
    return error(ErrCode.CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER) if config.max_deliver > 0 else None


def _check_backoff_and_description(
    config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds
) -> ApiError | None:
    if config.backoff and config.max_deliver != -1 and len(config.backoff) > config.max_deliver:
        return error(ErrCode.CONSUMER_MAX_DELIVER_BACKOFF)
    if len(config.description.encode()) > MAX_DESCRIPTION_BYTES:
        return error(ErrCode.CONSUMER_DESCRIPTION_TOO_LONG, max=MAX_DESCRIPTION_BYTES)
    return None


def _check_delivery(
    config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds
) -> ApiError | Steps[ApiError | None] | None:
    return _check_push(config, stream) if config.deliver_subject else _check_pull(config, stream, bounds)


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> Steps[ApiError | None]:
    to = config.deliver_subject
    if has_wildcard(to):
        return error(ErrCode.CONSUMER_DELIVER_TO_WILDCARDS)
    if not is_valid_subject(to):
        return error(ErrCode.CONSUMER_INVALID_DELIVER_SUBJECT)
    for subjects in subject_pieces(stream.subjects):
        if any(is_subset(to, subject) for subject in subjects):
            return error(ErrCode.CONSUMER_DELIVER_CYCLE)
        yield sum(map(cost_of, subjects))
    if config.max_waiting:
        return error(ErrCode.CONSUMER_PUSH_MAX_WAITING)
    if config.max_ack_pending > 0 and not needs_ack(config):
        return error(ErrCode.CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED)
    return error(ErrCode.CONSUMER_SMALL_HEARTBEAT) if 0 < config.idle_heartbeat < MIN_HEARTBEAT_NS else None


def _check_pull(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    refused = (
        (not needs_ack(config) and stream.retention is RetentionPolicy.WORKQUEUE, ErrCode.CONSUMER_PULL_REQUIRES_ACK),
        (config.rate_limit_bps > 0, ErrCode.CONSUMER_PULL_WITH_RATE_LIMIT),
        (config.idle_heartbeat > 0, ErrCode.CONSUMER_HB_REQUIRES_PUSH),
        (config.flow_control, ErrCode.CONSUMER_FC_REQUIRES_PUSH),
        (0 < config.max_expires < MILLISECOND, ErrCode.CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL),
    )
    code = next((code for bad, code in refused if bad), 0)
    if code:
        return error(code)
    if 0 < bounds.max_request_batch < config.max_batch:
        return error(ErrCode.CONSUMER_MAX_REQUEST_BATCH_EXCEEDED, limit=bounds.max_request_batch)
    return None


def _check_limits(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    limits = stream.consumer_limits
    for limit in (bounds.server_max_ack_pending, bounds.max_ack_pending, limits.max_ack_pending):
        if 0 < limit < config.max_ack_pending:
            return error(ErrCode.CONSUMER_MAX_PENDING_ACK_EXCESS, limit=limit)
    if 0 < limits.inactive_threshold < config.inactive_threshold:
        return error(ErrCode.CONSUMER_INACTIVE_THRESHOLD_EXCESS, limit=format_duration(limits.inactive_threshold))
    return None


def _check_direct(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    if not config.direct:
        return None
    if not config.deliver_subject:
        return error(ErrCode.CONSUMER_DIRECT_REQUIRES_PUSH)
    return error(ErrCode.CONSUMER_DIRECT_REQUIRES_EPHEMERAL) if is_durable(config) else None


def _check_filters(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> Steps[ApiError | None]:
    if config.filter_subject and config.filter_subjects:
        return error(ErrCode.CONSUMER_DUPLICATE_FILTER_SUBJECTS)
    filters = filters_of(config)
    if not all(filters):
        return error(ErrCode.CONSUMER_EMPTY_FILTER)
    covered = yield from first_covered(filters)
    for place, subject in enumerate(filters):
        if not is_valid_subject(subject):
            return error(ErrCode.STREAM_INVALID_CONFIG, err="invalid subject")
        if place == covered:
            return error(ErrCode.CONSUMER_OVERLAPPING_SUBJECT_FILTERS)
        yield cost_of(subject)
    return None


_POLICY_TEXT: Final = {
    DeliverPolicy.ALL: "all",
    DeliverPolicy.LAST: "last",
    DeliverPolicy.LAST_PER_SUBJECT: "last per subject",
    DeliverPolicy.NEW: "new",
    DeliverPolicy.BY_START_SEQUENCE: "by start sequence",
    DeliverPolicy.BY_START_TIME: "by start time",
}


def _check_start(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    fault = _start_fault(config)
    if not fault:
        return None
    return error(
        ErrCode.CONSUMER_INVALID_POLICY,
        err=f"consumer delivery policy is deliver {_POLICY_TEXT[config.deliver_policy]}, but {fault}",
    )


def _start_fault(config: ConsumerConfig) -> str:
    """Return the conflict between the deliver policy and the given start, or ""."""
    policy, seq, at = config.deliver_policy, config.opt_start_seq, config.opt_start_time
    if policy is DeliverPolicy.BY_START_SEQUENCE:
        if not seq:
            return "optional start sequence is not set"
        return "" if at is None else "optional start time is also set"
    if policy is DeliverPolicy.BY_START_TIME:
        if at is None:
            return "optional start time is not set"
        return "optional start start sequence is also set" if seq else ""
    if seq:
        return "optional start sequence is also set"
    if at is not None:
        return "optional start time is also set"
    unfiltered = policy is DeliverPolicy.LAST_PER_SUBJECT and not filters_of(config)
    return "optional filter subject is not set" if unfiltered else ""


def _check_sampling(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    fault = sampling_fault(config.sample_freq)
    return error(ErrCode.CONSUMER_INVALID_SAMPLING, err=fault) if fault else None


def sampling_fault(text: str) -> str:
    """Return Go's error for a sample_freq that is not a whole number with an optional percent sign, "" if it is one."""
    digits = text.removesuffix("%")
    if not text:
        return ""
    sign = digits[:1] in ("+", "-")
    if not digits[sign:].isascii() or not digits[sign:].isdigit():
        return f"strconv.Atoi: parsing {go_quote(digits)}: invalid syntax"
    if not -INT64_MAX - 1 <= int(digits) <= INT64_MAX:
        return f"strconv.Atoi: parsing {go_quote(digits)}: value out of range"
    return "<nil>" if int(digits) < 0 else ""


def _check_rest(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    if config.flow_control and not config.idle_heartbeat:
        return error(ErrCode.CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS)
    if config.durable_name and config.name and config.name != config.durable_name:
        return error(ErrCode.CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH)
    if sum(len(k.encode()) + len(v.encode()) for k, v in config.metadata.items()) > MAX_METADATA_BYTES:
        return error(ErrCode.CONSUMER_METADATA_LENGTH, limit=f"{MAX_METADATA_BYTES // 1024}KB")
    return None


def _check_priority(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> Steps[ApiError | None]:
    if config.priority_policy in (None, PriorityPolicy.NONE):
        if config.priority_groups:
            return error(ErrCode.CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE)
        return error(ErrCode.CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE) if config.priority_timeout > 0 else None
    if config.deliver_subject:
        return error(ErrCode.CONSUMER_PUSH_WITH_PRIORITY_GROUP)
    if not config.priority_groups:
        return error(ErrCode.CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP)
    for number, group in enumerate(config.priority_groups, 1):
        if not group:
            return error(ErrCode.CONSUMER_EMPTY_GROUP_NAME)
        if not _GROUP_NAME.fullmatch(group):
            return error(ErrCode.CONSUMER_INVALID_GROUP_NAME)
        if not number % (STEP * GROUPS_PER_SUBJECT):
            yield STEP
    return None


GROUPS_PER_SUBJECT: Final = 16


CHECKS: Final[tuple[Check, ...]] = (
    _check_names,
    _check_replicas,
    _check_waits,
    _check_flow_acks,
    _check_backoff_and_description,
    _check_delivery,
    _check_limits,
    _check_direct,
    _check_filters,
    _check_start,
    _check_sampling,
    _check_rest,
    _check_priority,
)


_FIXED: Final = (
    ("deliver_policy", "deliver policy can not be updated"),
    ("mem_storage", "storage type can not be updated"),
    ("direct", "direct can not be updated"),
    ("sourcing", "sourcing can not be updated"),
    ("opt_start_seq", "start sequence can not be updated"),
    ("opt_start_time", "start time can not be updated"),
    ("ack_policy", "ack policy can not be updated"),
    ("replay_policy", "replay policy can not be updated"),
    ("idle_heartbeat", "heart beats can not be updated"),
    ("flow_control", "flow control can not be updated"),
)


def check_update(old: ConsumerConfig, new: ConsumerConfig, bound: bool) -> ApiError | None:
    """Return why `old` cannot become `new`, or None; `bound`: the old deliver subject has a subscriber."""
    for name, text in _FIXED:
        if _value(old, name) != _value(new, name):
            return error(ErrCode.CONSUMER_CREATE, err=text)
    if old.deliver_subject != new.deliver_subject:
        if not old.deliver_subject:
            return error(ErrCode.CONSUMER_CREATE, err="can not update pull consumer to push based")
        if not new.deliver_subject:
            return error(ErrCode.CONSUMER_CREATE, err="can not update push consumer to pull based")
        if bound:
            return error(ErrCode.CONSUMER_NAME_EXIST)
    if old.max_waiting != new.max_waiting:
        return error(ErrCode.CONSUMER_CREATE, err="max waiting can not be updated")
    return None


def _value(config: ConsumerConfig, name: str) -> object:
    """Return a field's value for a comparison: a time as its instant, unless it is invalid."""
    value = getattr(config, name)
    if name != "opt_start_time" or value is None:
        return value
    try:
        return parse_time(value)
    except ValueError:
        return value
