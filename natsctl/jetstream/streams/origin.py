"""Names that a stream and its origin must agree on, and the requests of a mirror or source to its origin.

Subjects, consumers, index of a source and identity of a stream are nats-server's, so that a stream of another server
can be mirrored and sourced from, and the headers that one server wrote are understood by the next. Source:
server/stream.go, server/consumer.go of nats-server.

The requests create a consumer, or reset a durable one. Those to newer servers name the required API level and the
identity of the origin; older servers refuse that and get a plain direct consumer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import field

from natsctl.api import headers
from natsctl.api.catalogue import ApiError
from natsctl.api.codec import encode
from natsctl.api.consumer import AckPolicy, ConsumerConfig, DeliverPolicy, SequenceInfo
from natsctl.api.model import Model, Uint64, blank
from natsctl.api.requests import ConsumerCreateRequest
from natsctl.api.stream import StreamSource, SubjectTransform
from natsctl.api.subject_index import SubjectIndex
from natsctl.api.subject_transform import SubjectMapping, source_pattern
from natsctl.api.subjects import API_PREFIX
from natsctl.api.times import format_time
from natsctl.api.units import SECOND
from natsctl.jetstream.advisories import nuid
from natsctl.store.steps import STEP, Steps, finish

if TYPE_CHECKING:
    from natsctl.jetstream.streams.stream import Stream


SEPARATOR: Final = "\f"
"""Separator of the filters, and of the destinations, of a source with several transforms."""

_DIGITS: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_HASH_CHARS: Final = 8


def short_hash(text: str) -> str:
    from hashlib import sha256  # half a megabyte, for streams with sources

    digest = sha256(text.encode()).digest()[:_HASH_CHARS]
    return bytes(_DIGITS[byte % len(_DIGITS)] for byte in digest).decode()


def identity(stream: Stream) -> str:
    """Return the identity of a stream; another stream of the same name has a different one."""
    return short_hash(format_time(stream.created_ns))


def source_fields(source: StreamSource) -> tuple[str, str, str]:
    name = source.name
    if source.external is not None:
        name += ":" + short_hash(source.external.api)
    if source.consumer is not None:
        name += ":C=" + short_hash(source.consumer.name)
    if not source.subject_transforms:
        return name, source.filter_subject or ">", ">"
    filters = SEPARATOR.join(transform.src or ">" for transform in source.subject_transforms)
    return name, filters, SEPARATOR.join(transform.dest or ">" for transform in source.subject_transforms)


def source_index(source: StreamSource) -> str:
    return " ".join(source_fields(source))


def stable_name(stream: Stream) -> str:
    """Return the part of a consumer's name that identifies a mirror or sourcing stream."""
    parts = [stream.name, stream.account.name]
    if stream.engine.options.domain:
        parts.append(stream.engine.options.domain)
    return " ".join(parts)


def mirror_consumer(stream: Stream) -> str:
    return "JS_MIRROR_" + short_hash(stable_name(stream))


def source_consumer(stream: Stream, source: StreamSource, repeated: bool) -> str:
    """Return the name of the consumer that a source requests; a distinct one if its stream is sourced twice."""
    text = short_hash(stable_name(stream))
    if repeated:
        text += " " + source_index(source)
    return "JS_SRC_" + short_hash(text)


def api_subject(source: StreamSource, verb: str) -> bytes:
    prefix = source.external.api if source.external is not None else API_PREFIX
    return f"{prefix}.{verb}".replace("..", ".").encode()


def deliver_subject(source: StreamSource, letter: str, random: str) -> str:
    """Return where the origin's consumer delivers to; `letter` is M for a mirror and S for a source."""
    if source.external is not None and source.external.deliver:
        return f"{source.external.deliver}.{letter}.{random}".replace("..", ".")
    return f"$JS.{letter}.{random}"


HEARTBEAT_NS: Final = SECOND
STALLED_NS: Final = 10 * SECOND
"""Silence after which a consumer is abandoned, and its inactive threshold at the origin. Source: nats-server."""
ACK_WAIT_NS: Final = 22 * 3600 * SECOND
"""Ack wait of a consumer without acks. Source: nats-server."""

NEWEST_LEVEL: Final = 5
"""API level of requests that name the identity of the origin."""
SOURCING_LEVEL: Final = 4
"""API level of consumers made for sourcing."""
OLD_LEVEL: Final = 0
"""API level of servers that have neither."""

_RANDOM: Final = 8


class ConsumerAnswer(Model):
    stream_name: str = field(default_factory=blank)
    name: str = field(default_factory=blank)
    config: ConsumerConfig = field(default_factory=lambda: ConsumerConfig())
    delivered: SequenceInfo = field(default_factory=lambda: SequenceInfo())
    num_pending: Uint64 = 0
    error: ApiError | None = None


def request_header(level: int, identity: str) -> bytes:
    """Return the header block of a request; the origin of an unknown past may be any stream (identity "")."""
    if level == OLD_LEVEL:
        return b""
    lines = [(headers.REQUIRED_API_LEVEL, b"%d" % level)]
    if level >= NEWEST_LEVEL:
        lines.append((headers.STREAM_IDENTITY, identity.encode()))
    return headers.encode(lines)


def reset_request(source: StreamSource, consumer: str) -> tuple[bytes, bytes]:
    """Return subject and body that put a durable consumer back to its ack floor."""
    return api_subject(source, f"CONSUMER.RESET.{source.name}.{consumer}"), b""


def create_request(
    stream: Stream, source: StreamSource, letter: str, config: ConsumerConfig, level: int
) -> tuple[bytes, bytes]:
    """Return subject and body that make a consumer; `config` has start and filters, and gets the rest."""
    rng = stream.engine.rng
    config.deliver_subject = deliver_subject(source, letter, nuid(rng, _RANDOM))
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
    return api_subject(source, verb), encode(ConsumerCreateRequest(stream_name=source.name, config=config))


def set_first_start(config: ConsumerConfig, source: StreamSource) -> None:
    if source.opt_start_seq:
        config.deliver_policy, config.opt_start_seq = DeliverPolicy.BY_START_SEQUENCE, source.opt_start_seq
    elif source.opt_start_time is not None:
        config.deliver_policy, config.opt_start_time = DeliverPolicy.BY_START_TIME, source.opt_start_time


FEW_TRANSFORMS: Final = 8
"""Transforms that are tried one after another."""


class Transforms:
    """The transforms of a mirror or a source that change subjects, each compiled when it is used first."""

    __slots__ = ("_compiled", "_index", "_transforms")

    def __init__(self, transforms: Sequence[SubjectTransform]) -> None:
        self._transforms = [transform for transform in transforms if transform.dest]
        self._compiled: dict[int, SubjectMapping] = {}
        self._index: SubjectIndex[int] = SubjectIndex()

    def indexing(self) -> Steps[None]:
        transforms = self._transforms
        if len(transforms) > FEW_TRANSFORMS:
            for place in range(self._index.count, len(transforms)):
                self._index.add(source_pattern(transforms[place].src), place)
                if not place % STEP:
                    yield STEP

    def __bool__(self) -> bool:
        return bool(self._transforms)

    def apply(self, subject: bytes) -> bytes:
        few = len(self._transforms) <= FEW_TRANSFORMS
        if not few and self._index.count < len(self._transforms):
            finish(self.indexing())
        for place in range(len(self._transforms)) if few else sorted(self._index.matching(subject)):
            mapping = self._compiled.get(place)
            if mapping is None:
                transform = self._transforms[place]
                mapping = self._compiled[place] = SubjectMapping.compile(transform.src, transform.dest)
            mapped = mapping.apply(subject)
            if mapped is not None:
                return mapped or subject
        return subject


def without_conditions(header: bytes) -> bytes:
    """Return a header block without the headers of its first publishing: expectations and batches."""
    if b"\r\nNats-Expected-" not in header and b"\r\nNats-Batch-" not in header:
        return header
    lines = header[:-4].split(b"\r\n")
    kept = [line for line in lines if not line.startswith((b"Nats-Expected-", b"Nats-Batch-"))]
    return b"\r\n".join(kept) + b"\r\n\r\n" if len(kept) > 1 else b""
