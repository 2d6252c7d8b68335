"""Names that a stream and its origin must agree on: subjects, consumers, index of a source, identity of a stream.

All are nats-server's, so that a stream of another server can be mirrored and sourced from, and the headers that one
server wrote are understood by the next. Source: server/stream.go, server/consumer.go of nats-server.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from natsctl.api.subjects import API_PREFIX
from natsctl.api.times import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from natsctl.api.stream import StreamSource
    from natsctl.jetstream.stream_context import StreamContext

SEPARATOR: Final = "\f"
"""Between the filters, and between the destinations, of a source with several transforms."""

_DIGITS: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_HASH_CHARS: Final = 8


def short_hash(text: str) -> str:
    """Return eight base62 digits that stand for `text`."""
    digest = sha256(text.encode()).digest()[:_HASH_CHARS]
    return bytes(_DIGITS[byte % len(_DIGITS)] for byte in digest).decode()


def identity(stream: StreamContext) -> str:
    """Return the identity of a stream, which differs from that of another stream of the same name."""
    return short_hash(format_time(stream.created_ns))


def source_fields(source: StreamSource) -> tuple[str, str, str]:
    """Return the name, filters and destinations that identify the messages of a source."""
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
    """Return `source_fields` as one text."""
    return " ".join(source_fields(source))


def stable_name(stream: StreamContext) -> str:
    """Return the part of a consumer's name that identifies a mirror or sourcing stream."""
    parts = [stream.name, stream.account.name]
    if stream.engine.options.domain:
        parts.append(stream.engine.options.domain)
    return " ".join(parts)


def mirror_consumer(stream: StreamContext) -> str:
    """Return the name of the consumer that a mirror requests."""
    return "JS_MIRROR_" + short_hash(stable_name(stream))


def source_consumer(stream: StreamContext, source: StreamSource, sources: Sequence[StreamSource]) -> str:
    """Return the name of the consumer that a source requests; a distinct one if a stream is sourced twice."""
    text = short_hash(stable_name(stream))
    if sum(other.name == source.name for other in sources) > 1:
        text += " " + source_index(source)
    return "JS_SRC_" + short_hash(text)


def api_subject(source: StreamSource, verb: str) -> bytes:
    """Return the subject of an API request to the origin."""
    prefix = source.external.api if source.external is not None else API_PREFIX
    return f"{prefix}.{verb}".replace("..", ".").encode()


def deliver_subject(source: StreamSource, letter: str, random: str) -> str:
    """Return where the origin's consumer delivers to; `letter` is M for a mirror and S for a source."""
    if source.external is not None and source.external.deliver:
        return f"{source.external.deliver}.{letter}.{random}".replace("..", ".")
    return f"$JS.{letter}.{random}"
