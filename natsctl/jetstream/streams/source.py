"""The sources of one stream: the origins' messages as new ones, each with a header that names its origin.

Theory of operation. Every sourced message names its origin in a header, so the stored messages hold the position of
each source, as long as the newest message of each is there. Because it may be deleted, expire or be consumed, the
positions also go into the journal, with the commit that holds the messages: a record holds the positions of some
sources at the time when `last_seq` was the stream's last sequence. Recovery takes the records in order, leaves out
records of messages lost in the crash, reads the headers of the messages after the last record, and writes
the result before any request to an origin, so that a position always agrees with the stored messages. (The journal is
written right after the messages. After a crash between the two, messages that a limit pushed out within the very commit
that brought them are not in the stream any more, but still in its log, and are read there too.)

The start of a source is decided, and written down, with its first connection. A recreated origin has another identity;
its messages are then sourced from the beginning, as for another stream. A source without a recorded position (the
stream was restored from a snapshot, or comes from another server) looks for its newest header from the end of the
stream, some messages per turn, before it connects; the first look is taken at once, because a crash right after the
first commit leaves messages without a record.

There may be tens of thousands of sources. They wait in one queue until they connect, so that the engine's ready queue
has one entry for all of them: the consumers and jobs of others wait for a few connections, not for all.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from natsctl.api import headers
from natsctl.api.consumer import ConsumerConfig, DeliverPolicy
from natsctl.api.errors import ErrCode
from natsctl.api.stream import StreamSource, StreamSourceInfo
from natsctl.api.times import format_time, parse_time
from natsctl.jetstream.streams import origin
from natsctl.jetstream.streams.upstream import OriginMessage, StoreLaterError, Upstream
from natsctl.store.steps import STEP, Steps, finish, pieces

if TYPE_CHECKING:
    from natsctl.jetstream.streams.stream import Stream
    from natsctl.store.errors import StoreError


ACK_PREFIX: Final = b"$JS.ACK."


class OriginPosition(NamedTuple):
    """The newest stored message of an origin, and the origin's identity at that time."""

    seq: int
    identity: str


NOWHERE: Final = OriginPosition(0, "")


class SourceHeader(NamedTuple):
    """The fields of a source header; `place`, the index of the source, is empty in headers of servers before 2.10."""

    stream: str
    place: str
    position: OriginPosition


def read_origin(header: bytes) -> SourceHeader | None:
    """Return the fields of a stored message's source header, None without a valid one."""
    value = headers.get(header, headers.STREAM_SOURCE)
    if value is None:
        return None
    if value.startswith(ACK_PREFIX):
        tokens = value.split(b".")
        at = 2 if len(tokens) == 9 else 4
        if len(tokens) not in (9, 11, 12) or not tokens[at + 3].isdigit():
            return None
        return SourceHeader(tokens[at].decode("utf-8", "replace"), "", OriginPosition(int(tokens[at + 3]), ""))
    fields = value.decode("utf-8", "replace").split(" ")
    if len(fields) < 2 or len(fields) == 3 or not fields[1].isdigit():
        return None
    index = " ".join((fields[0], fields[2], fields[3])) if len(fields) > 3 else ""
    return SourceHeader(fields[0], index, OriginPosition(int(fields[1]), fields[5] if len(fields) > 5 else ""))


class Source(Upstream):
    letter = "S"
    setup_failed = ErrCode.SOURCE_CONSUMER_SETUP_FAILED
    requires_flow_control = ErrCode.SOURCE_CONSUMER_REQUIRES_ACK_FC

    def __init__(self, stream: Stream, sources: SourceSet, source: StreamSource) -> None:
        super().__init__(stream, source)
        self._sources = sources
        self.index = origin.source_index(source)
        name, filters, destinations = origin.source_fields(source)
        self._name = name.encode()
        self._between = b" %b %b " % (filters.encode(), destinations.encode())
        self._end = b"\r\n\r\n"
        self._identity = ""
        self.position = NOWHERE
        self._skipped = 0
        self.fresh = False
        """True for a source without a position: its first connection determines its start."""

    def start(self) -> None:
        self._sources.connect_later(self)

    def info(self) -> StreamSourceInfo:
        info = super().info()
        if not self.recreated and self.position.seq > self._skipped:
            info.seq = self.position.seq
        if self.source.subject_transforms:
            info.filter_subject = ""
        return info

    def request(self) -> ConsumerConfig:
        source = self.source
        config = ConsumerConfig(
            name=origin.source_consumer(self._stream, source, self._sources.times[source.name] > 1),
            filter_subject=source.filter_subject,
            filter_subjects=[transform.src for transform in source.subject_transforms],
        )
        if self.position.seq and not self.recreated:
            config.deliver_policy, config.opt_start_seq = DeliverPolicy.BY_START_SEQUENCE, self.position.seq + 1
        else:
            origin.set_first_start(config, source)
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
        return "" if self.recreated else self.position.identity

    def connected(self, delivered_seq: int, identity: str) -> int:
        known = self.position.identity
        if self.recreated or (identity and known and identity != known):
            self.position = NOWHERE
        self.recreated = False
        if self.fresh:
            self.fresh = False
            self.position, self._skipped = OriginPosition(delivered_seq, identity), delivered_seq
            self._sources.moved(self)
        self._identity = identity
        self._end = b" %b\r\n\r\n" % identity.encode() if identity else b"\r\n\r\n"
        return max(self.position.seq, delivered_seq)

    def stored_seq(self) -> int:
        return self.position.seq

    def store_messages(self, messages: Sequence[OriginMessage]) -> None:
        """Store messages as new ones. Raises StoreError, or StoreLaterError when something refuses one for now."""
        store, mappings, done = self._stream.pipeline.store_sourced, self.transforms, 0
        name, between, end = self._name, self._between, self._end
        try:
            for seq, _, subject, header, payload in messages:
                line = b"%b %d%b%b%b" % (name, seq, between, subject, end)
                if header:
                    header = b"%bNats-Stream-Source: %b" % (_base(header), line)
                else:
                    header = b"NATS/1.0\r\nNats-Stream-Source: " + line
                if mappings:
                    subject = mappings.apply(subject)
                if not store(subject, header, payload):
                    raise StoreLaterError
                done = seq
        finally:
            if done:
                self.position = OriginPosition(done, self._identity)
                self._sources.moved(self)


def _base(header: bytes) -> bytes:
    """Return a header block, open at its end, without the headers of its first publishing or of another origin."""
    header = origin.without_conditions(header)
    if header and b"\r\nNats-Stream-Source:" in header:
        header = headers.remove(header, headers.STREAM_SOURCE)
    return header[:-2] if header else b"NATS/1.0\r\n"


SOURCE_COST: Final = 16
"""Cost of the start or the end of one source."""
SOURCED: Final = 0x30
"""Journal record: positions of sources."""
READ_BATCH: Final = 1024
"""Messages read at once at recovery, and examined per turn by a search."""
MAX_FORMER: Final = 1024
"""Maximum number of removed sources with remembered positions."""

Record = tuple[int, list[tuple[str, int, str]]]
"""Last sequence of the stream, and (index, sequence, identity) of sources."""

_encode: Final = msgspec.msgpack.encode
_decoder: Final = msgspec.msgpack.Decoder(Record)


class SourceSet:
    __slots__ = (
        "_connecting",
        "_known",
        "_named",
        "_ready",
        "_search_end",
        "_search_seq",
        "_searching",
        "_stream",
        "sources",
        "times",
    )

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.sources: dict[str, Source] = {}
        self.times: Counter[str] = Counter()
        self._known: dict[str, OriginPosition] = {}
        self._connecting: OrderedDict[Source, None] = OrderedDict()
        self._searching: dict[str, Source] = {}
        self._named: dict[str, list[Source]] = {}
        """Sources of the search by the name of their stream, and some that were found already."""
        self._search_seq = self._search_end = 0
        self._ready = False

    def __bool__(self) -> bool:
        return bool(self.sources)

    def configuring(self) -> Steps[None]:
        sources = self._stream.config.sources
        wanted: dict[str, StreamSource] = {}
        for piece in pieces(sources):
            wanted.update((origin.source_index(source), source) for source in piece)
            yield STEP
        self.times = Counter(source.name for source in sources)
        gone = [index for index in self.sources if index not in wanted]
        names: set[tuple[str, str]] = set()
        for kept in sources if gone else ():
            names.add((kept.name, origin.source_consumer(self._stream, kept, self.times[kept.name] > 1)))
            yield SOURCE_COST
        for index in gone:
            self._end(self.sources.pop(index), names)
            yield SOURCE_COST
        self._forget_former()
        for index, config in wanted.items():
            if index not in self.sources:
                source = Source(self._stream, self, config)
                yield from source.transforms.indexing()
                self.sources[index] = source
                if self._ready:
                    self._begin(source)
                yield SOURCE_COST
        self.sources = {index: self.sources[index] for index in wanted}

    def _end(self, gone: Source, names: set[tuple[str, str]]) -> None:
        if (gone.source.name, gone.consumer_name) not in names:
            gone.delete_consumer()
        if self._searching.pop(gone.index, None) is None and self._ready:
            self._known[gone.index] = gone.position
        gone.stop()

    def _forget_former(self) -> None:
        """Forget the positions of sources that were removed long ago."""
        former = [known for known in self._known if known not in self.sources]
        for known in former[:-MAX_FORMER]:
            del self._known[known]

    def starting(self) -> Steps[None]:
        """Start every source; the positions of all stored messages are known."""
        self._ready = True
        for piece in pieces([*self.sources.values()]):
            for source in piece:
                if self.sources.get(source.index) is source:
                    self._begin(source)
            yield STEP

    def _drop_queues(self) -> None:
        self._connecting.clear()
        self._searching.clear()
        self._named.clear()

    def stop(self) -> None:
        self._drop_queues()
        for source in self.sources.values():
            source.stop()

    def ending(self) -> Steps[None]:
        """End every connection, and delete this stream's consumers at every origin; no stream is created meanwhile."""
        self._drop_queues()
        sources = [*self.sources.values()]
        for source in sources:
            source.stopped = True
        for source in sources:
            source.delete_consumer()
            source.stop()
            yield SOURCE_COST

    def describing(self) -> Steps[list[StreamSourceInfo]]:
        infos: list[StreamSourceInfo] = []
        for piece in pieces([*self.sources.values()]):
            if infos:
                yield STEP
            infos += [source.info() for source in piece]
        return infos

    def _begin(self, source: Source) -> None:
        """Connect a source, once its position is known."""
        known = self._known.get(source.index)
        if known is not None:
            source.position = known
        elif self._stream.store.last_seq:
            self._search(source)
            return
        source.fresh = known is None
        source.start()

    # Positions

    def moved(self, source: Source) -> None:
        """Journal the position of a source, with the commit of the messages that it just brought."""
        self._known[source.index] = source.position
        store = self._stream.store
        if store.storage == "file":
            store.append_record(SOURCED, _encode((store.last_seq, [(source.index, *source.position)])))
            store.request_sync()
            self._stream.consumer_set.rewrite_if_large()

    def records(self) -> list[tuple[int, bytes]]:
        if not self._known or self._stream.store.storage != "file":
            return []
        body = (self._stream.store.last_seq, [(index, *position) for index, position in self._known.items()])
        return [(SOURCED, _encode(body))]

    def refused(self) -> None:
        """Return to the stored positions: the store could not keep its newest messages."""
        store = self._stream.store
        if not self.sources or not store.healthy:
            return
        self.stop()
        self._known, through = self._read_journal(store.records(), store.last_seq)
        self._read_headers(through)
        for kind, body in self.records():  # over records of removed messages: their sequences are reused
            store.append_record(kind, body)
        for source in self.sources.values():
            source.stopped = False
            if source.index not in self._known and store.last_seq:
                self._search(source)
                continue
            source.position = self._known.get(source.index, NOWHERE)
            source.fail_setup("the store could not keep its newest messages")

    # Recovery

    def recover(self, journal: Iterable[tuple[int, bytes]]) -> None:
        """Determine the position of each source, and journal it; `start` follows when it is durable."""
        store = self._stream.store
        self._known, through = self._read_journal(journal, store.last_seq)
        if self._known or self.sources:
            self._read_headers(through or max(store.last_seq - READ_BATCH, 0))
        if self._known and store.storage == "file" and store.healthy:
            for kind, body in self.records():
                store.append_record(kind, body)
            store.on_durable(self._recovered)
        else:
            self._recovered(None)

    def _recovered(self, fault: StoreError | None) -> None:
        if fault is None:
            finish(self.starting())

    def _read_journal(
        self, journal: Iterable[tuple[int, bytes]], last_seq: int
    ) -> tuple[dict[str, OriginPosition], int]:
        known: dict[str, OriginPosition] = {}
        through = 0
        for kind, body in journal:
            if kind == SOURCED:
                at_seq, positions = _decoder.decode(body)
                if at_seq <= last_seq:
                    through = at_seq
                    known.update((index, OriginPosition(seq, identity)) for index, seq, identity in positions)
        return known, through

    def _read_headers(self, through: int) -> None:
        """Update positions from the messages after `through`, removed or not."""
        for message in self._stream.store.remnants(through + 1, headed=True):
            found = read_origin(message.header)
            if found is not None and found.place:
                self._known[found.place] = found.position

    # Searching

    def _search(self, source: Source) -> None:
        """Search for the newest header of a source from the end of the stream."""
        source.position, source.fresh = NOWHERE, True
        self._searching[source.index] = source
        self._named.setdefault(source.index.split(" ", 1)[0], []).append(source)
        self._search_seq, self._search_end = self._stream.store.durable_seq, 0
        self._stream.engine.ready(self)

    def run(self, budget: int) -> int:
        """Examine the next messages of a search, newest first, and connect some of the sources that wait for that."""
        spent = self._look_back(budget) if self._searching else 0
        while self._connecting:
            source, _ = self._connecting.popitem(last=False)
            if not source.fresh and not source.stopped and source.index not in self._known:
                self.moved(source)  # found by a search
            spent += 1 + source.run(budget)
            if spent >= budget:
                break
        if self._searching or self._connecting:
            self._stream.engine.ready(self)
        return spent

    def connect_later(self, source: Source) -> None:
        self._connecting[source] = None
        self._stream.engine.ready(self)

    def _look_back(self, budget: int) -> int:
        store, end = self._stream.store, self._search_seq
        if not self._search_end:
            self._search_end = next((message.seq for message in store.remnants(1)), store.durable_seq + 1)
        start = max(end - min(budget, READ_BATCH) + 1, self._search_end)
        messages = [*takewhile(lambda message: message.seq <= end, store.remnants(start))] if end >= start else []
        for message in reversed(messages):
            found = read_origin(message.header) if message.header else None
            if found is not None:
                self._found(found.stream, found.place, found.position)
        self._search_seq = start - 1
        if self._search_seq < self._search_end:  # no header names the others
            self._connecting.update(dict.fromkeys(self._searching.values()))
            self._searching.clear()
        if not self._searching:
            self._named.clear()
        return len(messages)

    def _found(self, stream: str, index: str, position: OriginPosition) -> None:
        """Apply a header to its source; one without an index applies to every source of that stream."""
        matching = [self._searching[index]] if index in self._searching else []
        for source in matching if index else self._named.pop(stream, ()):
            if self._searching.get(source.index) is source:
                del self._searching[source.index]
                source.position, source.fresh = position, False
                source.start()
