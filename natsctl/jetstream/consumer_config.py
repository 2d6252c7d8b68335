"""What a consumer configuration becomes, and which ones are refused.

`normalise` fills in defaults, `check` refuses; both work on a config of their own, so that a refusal leaves nothing
behind. The order of checks is that of the reference: a client that made two mistakes is told the same one. Source:
server_api.md §4.2 and §4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, Final, NamedTuple

import msgspec

from natsctl.api.catalogue import ApiError, error
from natsctl.api.consumer import AckPolicy, ConsumerConfig, DeliverPolicy, PriorityPolicy
from natsctl.api.stream import RetentionPolicy, StreamConfig
from natsctl.api.subjects import has_wildcard, is_valid_name, is_valid_subject, overlaps
from natsctl.api.times import is_zero, parse_time
from natsctl.api.units import MILLISECOND, SECOND, format_duration

DEFAULT_MAX_WAITING: Final = 512
DEFAULT_ACK_WAIT_NS: Final = 30 * SECOND
DEFAULT_MAX_ACK_PENDING: Final = 1000
DEFAULT_INACTIVE_THRESHOLD_NS: Final = 5 * SECOND
MIN_HEARTBEAT_NS: Final = 100 * MILLISECOND
MAX_DESCRIPTION_BYTES: Final = 4096
MAX_METADATA_BYTES: Final = 128 * 1024
MAX_NAME: Final = 255

BAD_NAME: Final = "consumer name can not contain '.', '*', '>', '\\', '/'"


class ConsumerBounds(NamedTuple):
    """What server and account allow; 0 = no limit."""

    max_ack_pending: int = 0
    max_request_batch: int = 0


class Defaulted(NamedTuple):
    """A field that normalisation changed: pedantic requests are refused with `text`, the others take `value`."""

    name: str
    value: Any
    text: str


def filters_of(config: ConsumerConfig) -> list[str]:
    """Return the filter subjects of a config, whichever field holds them."""
    return [config.filter_subject] if config.filter_subject else list(config.filter_subjects)


def copy(config: ConsumerConfig) -> ConsumerConfig:
    """Return an independent copy."""
    return msgspec.convert(msgspec.to_builtins(config), ConsumerConfig)


def needs_ack(config: ConsumerConfig) -> bool:
    """Whether deliveries wait for acks."""
    return config.ack_policy is not AckPolicy.NONE


def is_durable(config: ConsumerConfig) -> bool:
    """Whether the consumer outlives its clients unless told otherwise."""
    return bool(config.durable_name)


def normalise(
    config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds, pedantic: bool = False
) -> ApiError | None:
    """Fill in defaults in place; with `pedantic`, return the error for the first value that would be corrected."""
    for name, value, text in _corrections(config):
        if pedantic:
            return error(10157, err=text)
        setattr(config, name, value)
    if config.max_deliver == 0:
        config.max_deliver = -1
    if not config.deliver_subject and not config.max_waiting:
        config.max_waiting = DEFAULT_MAX_WAITING
    _normalise_acks(config, stream, bounds)
    if not config.inactive_threshold:
        limit = stream.consumer_limits.inactive_threshold
        config.inactive_threshold = limit or (0 if is_durable(config) else DEFAULT_INACTIVE_THRESHOLD_NS)
    if not config.max_batch:
        config.max_batch = bounds.max_request_batch
    if config.deliver_policy is DeliverPolicy.UNDEFINED:
        config.deliver_policy = DeliverPolicy.ALL
    return None


def _corrections(config: ConsumerConfig) -> Iterator[Defaulted]:
    """Yield what is wrong enough that a pedantic request is refused for it."""
    if config.max_deliver < -1:
        yield Defaulted("max_deliver", -1, "max_deliver must be set to -1")
    for name in ("max_waiting", "max_batch", "max_expires", "max_bytes", "idle_heartbeat", "inactive_threshold"):
        if getattr(config, name) < 0:
            yield Defaulted(name, 0, f"{name} must not be negative")
    if config.priority_timeout < 0:
        yield Defaulted("priority_timeout", 0, "priority_timeout must not be negative")
    if config.max_ack_pending < -1:
        yield Defaulted("max_ack_pending", -1, "max_ack_pending must be set to -1")
    if config.backoff and config.backoff[0] >= 0 and config.ack_wait not in (0, config.backoff[0]):
        yield Defaulted("ack_wait", config.backoff[0], "first backoff value has to equal batch AckWait")


def _normalise_acks(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> None:
    if not needs_ack(config):
        return
    if config.backoff:
        config.ack_wait = config.ack_wait or config.backoff[0]
    elif not config.ack_wait:
        config.ack_wait = DEFAULT_ACK_WAIT_NS
    if not config.max_ack_pending:
        default = stream.consumer_limits.max_ack_pending or DEFAULT_MAX_ACK_PENDING
        config.max_ack_pending = min(default, bounds.max_ack_pending) if bounds.max_ack_pending > 0 else default


def check(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    """Return why a normalised config is refused, or None."""
    steps: tuple[Callable[[], ApiError | None], ...] = (
        lambda: _check_names(config),
        lambda: _check_replicas(config),
        lambda: _check_acks(config),
        lambda: _check_size(config),
        lambda: _check_push(config, stream) if config.deliver_subject else _check_pull(config, stream, bounds),
        lambda: _check_limits(config, stream, bounds),
        lambda: _check_filters(config),
        lambda: _check_start(config),
        lambda: _check_sampling(config),
        lambda: _check_priority(config),
    )
    return next((refusal for refusal in (step() for step in steps) if refusal is not None), None)


def _check_names(config: ConsumerConfig) -> ApiError | None:
    if config.name and config.durable_name and config.name != config.durable_name:
        return error(10132)
    name = config.name or config.durable_name
    if len(name) > MAX_NAME:
        return error(10102, max=MAX_NAME)
    if name and not is_valid_name(name):
        return error(10052, err=BAD_NAME)
    return None


def _check_replicas(config: ConsumerConfig) -> ApiError | None:
    if config.num_replicas < 0:
        return error(10133)
    if config.num_replicas > 1:
        return error(10074)
    return None


def _check_acks(config: ConsumerConfig) -> ApiError | None:
    if config.ack_policy is AckPolicy.FLOW_CONTROL:
        return error(10181)
    if config.ack_wait < 0:
        return error(10183)
    if any(wait < 0 for wait in config.backoff):
        return error(10184)
    if config.max_deliver != -1 and len(config.backoff) > config.max_deliver:
        return error(10116)
    return None


def _check_size(config: ConsumerConfig) -> ApiError | None:
    if len(config.description.encode()) > MAX_DESCRIPTION_BYTES:
        return error(10107, max=MAX_DESCRIPTION_BYTES)
    if sum(len(k.encode()) + len(v.encode()) for k, v in config.metadata.items()) > MAX_METADATA_BYTES:
        return error(10135, limit="128KB")
    return None


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> ApiError | None:
    to = config.deliver_subject
    if not is_valid_subject(to):
        return error(10112)
    if has_wildcard(to):
        return error(10079)
    if any(overlaps(subject, to) for subject in stream.subjects):
        return error(10081)
    if config.max_waiting:
        return error(10080)
    if config.max_ack_pending > 0 and not needs_ack(config):
        return error(10082)
    if 0 < config.idle_heartbeat < MIN_HEARTBEAT_NS:
        return error(10083)
    if config.direct and config.durable_name:
        return error(10091)
    return error(10108) if config.flow_control and not config.idle_heartbeat else None


def _check_pull(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    refused = (
        (not needs_ack(config) and stream.retention is RetentionPolicy.WORKQUEUE, 10084),
        (config.rate_limit_bps > 0, 10086),
        (config.max_waiting < 0, 10087),
        (config.idle_heartbeat > 0, 10088),
        (config.flow_control, 10089),
        (config.direct, 10090),
        (config.max_batch < 0, 10114),
        (0 < config.max_expires < MILLISECOND, 10115),
    )
    code = next((code for bad, code in refused if bad), 0)
    if code:
        return error(code)
    if 0 < bounds.max_request_batch < config.max_batch:
        return error(10125, limit=bounds.max_request_batch)
    return None


def _check_limits(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    limits = stream.consumer_limits
    for limit in (limits.max_ack_pending, bounds.max_ack_pending):
        if limit > 0 and needs_ack(config) and (config.max_ack_pending > limit or config.max_ack_pending < 0):
            return error(10121, limit=limit)
    if 0 < limits.inactive_threshold < config.inactive_threshold:
        return error(10153, limit=format_duration(limits.inactive_threshold))
    if stream.retention is RetentionPolicy.WORKQUEUE:
        if config.ack_policy is not AckPolicy.EXPLICIT:
            return error(10098)
        if config.deliver_policy is not DeliverPolicy.ALL:
            return error(10101)
    return None


def _check_filters(config: ConsumerConfig) -> ApiError | None:
    if config.filter_subject and config.filter_subjects:
        return error(10136)
    filters = filters_of(config)
    if not all(filters):
        return error(10139)
    for subject in filters:
        if not is_valid_subject(subject):
            return error(10052, err="invalid subject")
    return error(10138) if any(overlaps(a, b) for a, b in combinations(filters, 2)) else None


_POLICY_TEXT: Final = {
    DeliverPolicy.ALL: "all",
    DeliverPolicy.LAST: "last",
    DeliverPolicy.LAST_PER_SUBJECT: "last per subject",
    DeliverPolicy.NEW: "new",
    DeliverPolicy.BY_START_SEQUENCE: "by start sequence",
    DeliverPolicy.BY_START_TIME: "by start time",
}


def _check_start(config: ConsumerConfig) -> ApiError | None:
    policy = config.deliver_policy
    text = f"consumer delivery policy is deliver {_POLICY_TEXT[policy]}, but optional "
    by_seq, by_time = policy is DeliverPolicy.BY_START_SEQUENCE, policy is DeliverPolicy.BY_START_TIME
    if by_seq and not config.opt_start_seq:
        return error(10094, err=text + "start sequence is not set")
    if by_time and config.opt_start_time is None:
        return error(10094, err=text + "start time is not set")
    if config.opt_start_seq and not by_seq:
        return error(10094, err=text + "start sequence is also set")
    if config.opt_start_time is not None and not by_time:
        return error(10094, err=text + "start time is also set")
    if policy is DeliverPolicy.LAST_PER_SUBJECT and not filters_of(config):
        return error(10094, err=text + "filter subject is not set")
    return None


def _check_sampling(config: ConsumerConfig) -> ApiError | None:
    return error(10095, err=sampling_fault(config.sample_freq)) if sampling_fault(config.sample_freq) else None


def sampling_fault(text: str) -> str:
    """Return Go's text for a sample_freq that is no whole number with an optional percent sign, "" for a good one."""
    digits = text.removesuffix("%")
    if not text:
        return ""
    sign = digits[:1] in ("+", "-")
    if not digits[sign:].isascii() or not digits[sign:].isdigit():
        return f'strconv.Atoi: parsing "{digits}": invalid syntax'
    return "sample frequency must not be negative" if int(digits) < 0 else ""


def sample_percent(config: ConsumerConfig) -> int:
    """Return how many of a hundred acks give a metric."""
    return min(int(config.sample_freq.removesuffix("%") or 0), 100)


def _check_priority(config: ConsumerConfig) -> ApiError | None:
    """Priority groups are for servers that have them; none is promised here, so nothing is accepted and ignored."""
    policy = config.priority_policy or PriorityPolicy.NONE
    if not config.priority_groups:
        return error(10159) if policy is not PriorityPolicy.NONE else None
    if config.deliver_subject:
        return error(10178)
    if policy is PriorityPolicy.NONE:
        return error(10196)
    return error(10052, err="priority groups are not supported by this server")


def pause_until_ns(config: ConsumerConfig) -> int:
    """Return until when the consumer is paused, ns since the epoch, 0 for never."""
    return 0 if is_zero(config.pause_until) else parse_time(config.pause_until or "")
