"""One source of a stream: the origin's messages as new ones, each with a header that names its origin.

The newest of those headers holds the position; `source_set.py` keeps it in the journal. Where it begins is decided, and
written down, with its first connection. A recreated origin has another identity; its messages are then sourced from the
beginning, as those of another stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from natsctl.api import headers
from natsctl.api.catalogue import ApiError, error
from natsctl.api.consumer import ConsumerConfig, DeliverPolicy
from natsctl.api.err_codes import ErrCode
from natsctl.api.stream import StreamSource, StreamSourceInfo
from natsctl.api.times import format_time, parse_time
from natsctl.jetstream.upstream import origin
from natsctl.jetstream.upstream.mirror import apply_mappings, compile_mappings, set_first_start, without_conditions
from natsctl.jetstream.upstream.upstream import StoreLaterError, Taken, Upstream

if TYPE_CHECKING:
    from natsctl.jetstream.stream_context import StreamContext
    from natsctl.jetstream.upstream.source_set import SourceSet

ACK_PREFIX: Final = b"$JS.ACK."


class Position(NamedTuple):
    """The newest stored message of an origin, and the origin's identity at that time."""

    seq: int
    identity: str


NOWHERE: Final = Position(0, "")


class Origin(NamedTuple):
    """The fields of a source header; `place`, the index of the source, is empty in headers of servers before 2.10."""

    stream: str
    place: str
    position: Position


def read_origin(header: bytes) -> Origin | None:
    """Return the fields of a stored message's source header, None without a valid one."""
    value = headers.get(header, headers.STREAM_SOURCE)
    if value is None:
        return None
    if value.startswith(ACK_PREFIX):
        tokens = value.split(b".")
        at = 2 if len(tokens) == 9 else 4
        if len(tokens) not in (9, 11, 12) or not tokens[at + 3].isdigit():
            return None
        return Origin(tokens[at].decode("utf-8", "replace"), "", Position(int(tokens[at + 3]), ""))
    fields = value.decode("utf-8", "replace").split(" ")
    if len(fields) < 2 or len(fields) == 3 or not fields[1].isdigit():
        return None
    index = " ".join((fields[0], fields[2], fields[3])) if len(fields) > 3 else ""
    return Origin(fields[0], index, Position(int(fields[1]), fields[5] if len(fields) > 5 else ""))


class Source:
    """One source of one stream."""

    def __init__(self, stream: StreamContext, sources: SourceSet, source: StreamSource) -> None:
        """Prepare to source from the stream that `source` names."""
        self._stream = stream
        self.letter = "S"
        self._sources = sources
        self.source = source
        self.index = origin.source_index(source)
        name, filters, destinations = origin.source_fields(source)
        self._name = name.encode()
        self._between = b" %b %b " % (filters.encode(), destinations.encode())
        self._end = b"\r\n\r\n"
        self._identity = ""
        self._mappings = compile_mappings(source)
        self.position = NOWHERE
        self._anew = False
        self._skipped = 0
        self.fresh = False
        """True for a source without a position: its first connection decides where it begins."""
        self.upstream = Upstream(stream, self)

    def info(self) -> StreamSourceInfo:
        """Return the entry for stream infos."""
        info = self.upstream.info()
        if not self._anew and self.position.seq > self._skipped:
            info.seq = self.position.seq
        if self.source.subject_transforms:
            info.filter_subject = ""
        return info

    # Called by the connection

    def request(self) -> ConsumerConfig:
        """Return the start and the filters of the consumer."""
        source = self.source
        config = ConsumerConfig(
            name=origin.source_consumer(self._stream, source, self._stream.config.sources),
            filter_subject=source.filter_subject,
            filter_subjects=[transform.src for transform in source.subject_transforms],
        )
        if self.position.seq and not self._anew:
            config.deliver_policy, config.opt_start_seq = DeliverPolicy.BY_START_SEQUENCE, self.position.seq + 1
        else:
            set_first_start(config, source)
            if self.fresh:
                self._begin_late(config)
        return config

    def _begin_late(self, config: ConsumerConfig) -> None:
        """Skip messages older than the stream's newest one, once messages were removed. Source: nats-server."""
        store, starts_at = self._stream.store, self.source.opt_start_time
        newest_ns = min(store.last_ts_ns, self._stream.engine.clock.now_ns())
        if config.deliver_policy is DeliverPolicy.BY_START_SEQUENCE or not newest_ns:
            return
        if store.first_seq > 1 if starts_at is None else parse_time(starts_at) < newest_ns:
            config.deliver_policy = DeliverPolicy.BY_START_TIME
            config.opt_start_time = format_time(newest_ns)

    def known_identity(self) -> str:
        """Return the origin's identity when its last message was stored."""
        return "" if self._anew else self.position.identity

    def connected(self, delivered_seq: int, identity: str) -> int:
        """Record that deliveries follow after `delivered_seq`; return the newest stored sequence of the origin."""
        known = self.position.identity
        if self._anew or (identity and known and identity != known):
            self.position = NOWHERE
        self._anew = False
        if self.fresh:
            self.fresh = False
            self.position, self._skipped = Position(delivered_seq, identity), delivered_seq
            self._sources.moved(self)
        self._identity = identity
        self._end = b" %b\r\n\r\n" % identity.encode() if identity else b"\r\n\r\n"
        return max(self.position.seq, delivered_seq)

    def recreated(self) -> None:
        """Start over with the next connection."""
        self._anew = True

    def taken_seq(self) -> int:
        """Return the newest sequence of the origin that is stored."""
        return self.position.seq

    def setup_error(self, text: str) -> ApiError:
        """Return the error of a source that could not be connected."""
        return error(ErrCode.SOURCE_CONSUMER_SETUP_FAILED, err=text)

    def take(self, messages: Sequence[Taken]) -> None:
        """Store messages as new ones. Raises StoreError, or StoreLaterError when something refuses one for now."""
        store, mappings, done = self._stream.pipeline.store_sourced, self._mappings, 0
        name, between, end = self._name, self._between, self._end
        try:
            for seq, _, subject, header, payload in messages:
                told = b"%b %d%b%b%b" % (name, seq, between, subject, end)
                if header:
                    header = b"%bNats-Stream-Source: %b" % (_base(header), told)
                else:
                    header = b"NATS/1.0\r\nNats-Stream-Source: " + told
                if mappings:
                    subject = apply_mappings(mappings, subject)
                if not store(subject, header, payload):
                    raise StoreLaterError
                done = seq
        finally:
            if done:
                self.position = Position(done, self._identity)
                self._sources.moved(self)


def _base(header: bytes) -> bytes:
    """Return a header block, open at its end, without the headers of its first publishing or of another origin."""
    header = without_conditions(header)
    if header and b"\r\nNats-Stream-Source:" in header:
        header = headers.remove(header, headers.STREAM_SOURCE)
    return header[:-2] if header else b"NATS/1.0\r\n"
