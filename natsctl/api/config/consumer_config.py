"""Normalisation of consumer configurations: defaults of the fields that were not given.

`normalise` works on a config of its own, so that a refusal leaves nothing behind.
Source: docs/compatibility.md#consumer-configuration.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from natsctl.api.catalogue import ApiError, error
from natsctl.api.consumer import AckPolicy, ConsumerConfig, DeliverPolicy, PriorityPolicy
from natsctl.api.err_codes import ErrCode
from natsctl.api.stream import StreamConfig
from natsctl.api.times import is_zero, parse_time
from natsctl.api.units import MINUTE, SECOND

DEFAULT_MAX_WAITING: Final = 512
DEFAULT_ACK_WAIT_NS: Final = 30 * SECOND
DEFAULT_MAX_ACK_PENDING: Final = 1000
DEFAULT_INACTIVE_THRESHOLD_NS: Final = 5 * SECOND
DEFAULT_PIN_NS: Final = 2 * MINUTE
FLOW_CONTROL_HEARTBEAT_NS: Final = SECOND
"""Idle heartbeat of a consumer whose acks are flow control answers: the only one nats-server allows."""

_LEAST: Final = (
    ("max_waiting", 0),
    ("max_ack_pending", -1),
    ("max_batch", 0),
    ("max_expires", 0),
    ("max_bytes", 0),
    ("idle_heartbeat", 0),
    ("inactive_threshold", 0),
    ("priority_timeout", 0),
)
"""Fields whose lower values mean the one given here."""


class ConsumerBounds(NamedTuple):
    """Limits of server and account; 0 = no limit."""

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
    """Return whether the consumer is kept without subscribers by default."""
    return bool(config.durable_name)


def pause_until_ns(config: ConsumerConfig) -> int:
    """Return until when the consumer is paused, ns since the epoch, 0 for never."""
    return 0 if is_zero(config.pause_until) else parse_time(config.pause_until or "")


def sample_percent(config: ConsumerConfig) -> int:
    """Return how many of a hundred acks give a metric."""
    return min(int(config.sample_freq.removesuffix("%") or 0), 100)


def normalise(
    config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds, pedantic: bool = False
) -> ApiError | None:
    """Fill in defaults in place; with `pedantic`, return the error for the first value that would be corrected."""
    text = raise_to_least(config, pedantic) or _default_acks(config, stream, bounds, pedantic)
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


def raise_to_least(config: ConsumerConfig, pedantic: bool) -> str:
    """Correct values that are lower than they can be; return what a pedantic request is refused with, or ""."""
    if pedantic and config.max_deliver < -1:
        return "max_deliver must be set to -1"
    if config.max_deliver == 0 or config.max_deliver < -1:
        config.max_deliver = -1
    for name, least in _LEAST:
        if getattr(config, name) < least:
            if pedantic:
                return f"{name} must be set to -1" if least else f"{name} must not be negative"
            setattr(config, name, least)
    if not config.deliver_subject:
        config.max_waiting = config.max_waiting or DEFAULT_MAX_WAITING
    return ""


def _default_acks(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds, pedantic: bool) -> str:
    """Fill in what acks and inactivity need; return what a pedantic request is refused with, or ""."""
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
    """Set the default inactivity threshold of an ephemeral consumer.

    In an update `durable` is that of the existing one.
    """
    if not durable and config.inactive_threshold <= 0:
        config.inactive_threshold = DEFAULT_INACTIVE_THRESHOLD_NS
