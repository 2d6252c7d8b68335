"""The requests of a mirror or source to its origin: creation of a consumer, or reset of a durable one.

Requests to newer servers name the required API level and the identity of the origin; older ones, which refuse that, are
asked for a plain direct consumer. Source: server/stream.go of nats-server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import field

from natsctl.api import headers
from natsctl.api.catalogue import ApiError
from natsctl.api.codec import encode
from natsctl.api.consumer import AckPolicy, ConsumerConfig, SequenceInfo
from natsctl.api.model import Model, Uint64, blank
from natsctl.api.requests import ConsumerCreateRequest
from natsctl.api.stream import StreamSource
from natsctl.api.units import SECOND
from natsctl.jetstream.consumers.consumer_events import nuid
from natsctl.jetstream.upstream import origin

if TYPE_CHECKING:
    from natsctl.jetstream.stream_context import StreamContext

HEARTBEAT_NS: Final = SECOND
STALLED_NS: Final = 10 * SECOND
"""Silence after which a consumer is given up; what an unused one lives for at the origin. Source: nats-server."""
ACK_WAIT_NS: Final = 22 * 3600 * SECOND
"""Of a consumer without acks. Source: nats-server."""

NEWEST_LEVEL: Final = 5
"""API level of requests that name the identity of the origin."""
SOURCING_LEVEL: Final = 4
"""API level of consumers made for sourcing."""
OLD_LEVEL: Final = 0
"""Of servers that know neither."""

_RANDOM: Final = 8


class Made(Model):
    """The used part of the answer to a consumer's creation or reset."""

    stream_name: str = field(default_factory=blank)
    name: str = field(default_factory=blank)
    config: ConsumerConfig = field(default_factory=lambda: ConsumerConfig())
    delivered: SequenceInfo = field(default_factory=lambda: SequenceInfo())
    num_pending: Uint64 = 0
    error: ApiError | None = None


def header(level: int, identity: str) -> bytes:
    """Return the header block of a request; the origin of an unknown past may be any stream (identity "")."""
    if level == OLD_LEVEL:
        return b""
    lines = [(headers.REQUIRED_API_LEVEL, b"%d" % level)]
    if level >= NEWEST_LEVEL:
        lines.append((headers.STREAM_IDENTITY, identity.encode()))
    return headers.encode(lines)


def reset(source: StreamSource, consumer: str) -> tuple[bytes, bytes]:
    """Return subject and body that put a durable consumer back to its ack floor."""
    return origin.api_subject(source, f"CONSUMER.RESET.{source.name}.{consumer}"), b""


def creation(
    stream: StreamContext, source: StreamSource, letter: str, config: ConsumerConfig, level: int
) -> tuple[bytes, bytes]:
    """Return subject and body that make a consumer; `config` has start and filters, and gets the rest."""
    rng = stream.engine.rng
    config.deliver_subject = origin.deliver_subject(source, letter, nuid(rng, _RANDOM))
    config.ack_policy, config.ack_wait, config.max_deliver = AckPolicy.NONE, ACK_WAIT_NS, 1
    config.idle_heartbeat, config.flow_control = HEARTBEAT_NS, True
    config.direct, config.inactive_threshold = True, STALLED_NS
    config.sourcing = level >= SOURCING_LEVEL
    if not config.sourcing:
        config.name += "_" + nuid(rng, _RANDOM)
    kind = "mirror" if letter == "M" else "src"
    config.metadata = {f"_nats.{kind}.stream": stream.name, f"_nats.{kind}.acc": stream.account.name}
    if stream.engine.options.domain:
        config.metadata[f"_nats.{kind}.domain"] = stream.engine.options.domain
    if len(config.filter_subjects) == 1:
        config.filter_subject, config.filter_subjects = config.filter_subjects[0], []
    verb = f"CONSUMER.CREATE.{source.name}"
    if config.filter_subject:
        verb += f".{config.name}.{config.filter_subject}"
    return origin.api_subject(source, verb), encode(ConsumerCreateRequest(stream_name=source.name, config=config))
