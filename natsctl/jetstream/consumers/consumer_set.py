"""The consumers of one stream: creation, deletion, journal and recovery.

Theory of operation. `stream.consumers` holds them by name; every journaled consumer also has a number that is never
reused in this stream's journal. Every change of a consumer makes the journal grow; when it is much larger than the
state it describes, it is rewritten as one `Created` record per consumer with its present state. Consumers of memory
streams and those with `mem_storage` are not journaled at all: they end with the process.

An idle consumer costs about 6 KB and no timer (one if it has an inactive threshold) and no subscription
(consumer_router.py); a message that it does not take costs it nothing (retention.py).

A consumer that is acknowledged by flow control feeds another stream, perhaps on a server that keeps running while this
one crashes. If a delivery number were used twice, that server would take the second delivery for a repetition, and its
message would be lost with the next ack. So after a crash more numbers are skipped than can have been lost, and the
other server notices the gap with the next delivery or heartbeat and reconnects.

The stream's duplicate window writes its own kinds of records to the same journal (dedupe.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from natsctl.api.advisories import ActionType
from natsctl.api.codec import encode
from natsctl.api.consumer import AckPolicy, ConsumerConfig
from natsctl.jetstream.advisories import nuid
from natsctl.jetstream.consumers.consumer import Consumer
from natsctl.jetstream.consumers.consumer_state import (
    ConsumerRecord,
    ConsumerState,
    Created,
    Deleted,
    Updated,
    apply_ops,
    decode_record,
    encode_record,
)
from natsctl.store.errors import StoreError
from natsctl.store.steps import STEP, Steps, pieces
from natsctl.store.stream import RecordsCallback

if TYPE_CHECKING:
    from natsctl.jetstream.consumers.retention import FilterClaim
    from natsctl.jetstream.streams.stream import Stream

RECORD_COST: Final = 1
RECOVERED_COST: Final = 16
"""Cost of a record and of a consumer of a journal, in messages examined."""

ENDED_COST: Final = 12
"""Cost of the end of a consumer, or of its advisory."""

REWRITE_BYTES: Final = 4 << 20
"""A journal smaller than this is never rewritten."""

REWRITE_FACTOR: Final = 8
"""Maximum growth of a journal since its last rewrite, as a factor."""

UNSURE_DELIVERIES: Final = 1 << 24
"""More deliveries than the journal can lack after a crash: those of the second within which it is synced."""

EPHEMERAL_NAME: Final = 8
"""Length of a name that the server gives."""

Settled = Callable[[StoreError | None], None]

_decode_config: Final = msgspec.json.Decoder(ConsumerConfig)


class ConsumerSet:
    __slots__ = ("_hidden", "_last_number", "_rewriting", "_rewritten_bytes", "_stream", "fault")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._hidden: set[str] = set()
        self._last_number = 0
        self._rewritten_bytes = 0
        self._rewriting = False
        self.fault: StoreError | None = None

    @property
    def consumers(self) -> dict[str, Consumer]:
        return self._stream.consumers

    def visible(self) -> list[Consumer]:
        consumers = self._stream.consumers
        return [consumers[name] for name in sorted(consumers) if not consumers[name].config.direct]

    @property
    def count(self) -> int:
        return len(self._stream.consumers) - len(self._hidden)

    # Life of consumers

    def new_name(self) -> str:
        while True:
            name = nuid(self._stream.engine.rng, EPHEMERAL_NAME)
            if name not in self._stream.consumers:
                return name

    def create(
        self,
        name: str,
        config: ConsumerConfig,
        state: ConsumerState | None = None,
        created_ns: int = 0,
        claim: FilterClaim | None = None,
    ) -> Consumer:
        """Make and start a consumer with a checked config; it survives a crash once the store's next commit is done.

        With a state (and creation time) from a snapshot it continues there. `claim` holds its filters, if they were
        claimed already. Raises StoreError (nothing made).
        """
        stream = self._stream
        created_ns = created_ns or stream.engine.clock.now_ns()
        number = self._last_number + 1 if self._journaled(config) else 0
        filters = claim.filters if claim is not None else None
        consumer = Consumer(stream, name, config, created_ns, self, state, number, filters)
        if number:
            self._append(_created(consumer))
            self._last_number = number
            stream.store.request_sync()
        self._add(consumer)
        stream.retention.consumer_added(consumer, claim)
        consumer.start()
        consumer.events.action(ActionType.CREATE)
        return consumer

    def update(self, consumer: Consumer, config: ConsumerConfig, claim: FilterClaim | None = None) -> None:
        """Give a consumer a checked config; durable once the store's next commit is done. Raises StoreError."""
        if consumer.number:
            self._append(encode_record(Updated(consumer.number, encode(config))))
            self._stream.store.request_sync()
        consumer.update(config, claim.filters if claim is not None else None)
        self._stream.retention.consumer_updated(consumer, claim)

    def delete(self, consumer: Consumer) -> None:
        """End a consumer for good; durable once the store's next commit is done. Raises StoreError (nothing done)."""
        if consumer.number:
            self._append(encode_record(Deleted(consumer.number)))
            self._stream.store.request_sync()
        self._drop(consumer)
        consumer.events.action(ActionType.DELETE)

    def undo(self, consumer: Consumer) -> None:
        """Undo a creation that could not be made durable."""
        if self._stream.consumers.get(consumer.name) is consumer:
            self._drop(consumer)

    def _add(self, consumer: Consumer) -> None:
        self._stream.consumers[consumer.name] = consumer
        if consumer.config.direct:
            self._hidden.add(consumer.name)

    def _drop(self, consumer: Consumer) -> None:
        del self._stream.consumers[consumer.name]
        self._hidden.discard(consumer.name)
        consumer.stop()
        self._stream.retention.consumer_deleted(consumer)

    def stop(self, removed: bool) -> None:
        """Stop every consumer, with advisories if the stream is `removed`; no stream is created meanwhile.

        Nothing reaches a consumer or comes from it from now on, and the rest of very many follows in steps.
        """
        stream, name = self._stream, self._stream.name.encode()
        consumers = [*stream.consumers.values()]
        for consumer in consumers:
            consumer.stopped = True
        stream.js.router.hold(name, _decline)
        stream.js.work.begin(self._ending(consumers, removed), lambda ended: stream.js.router.hold(name, None))

    def _ending(self, consumers: Sequence[Consumer], removed: bool) -> Steps[None]:
        for consumer in self.visible() if removed else ():
            consumer.events.action(ActionType.DELETE)
            yield ENDED_COST
        for consumer in consumers:
            consumer.end()
            yield ENDED_COST

    # Called by consumers (see consumer.Journal)

    def changed(self, consumer: Consumer) -> None:
        """Write one record for the changes that the consumer's log gathered."""
        record = consumer.log.take(consumer.number, consumer.state.last_ack_ns)
        if record is None or not consumer.number:
            return
        try:
            self._append(record)
            self.rewrite_if_large()
        except StoreError as fault:
            self.fault = fault

    def durable(self, consumer: Consumer, callback: Settled) -> None:
        """Call back when everything the consumer wrote survives a crash, or with the error that prevents it."""
        if consumer.number and self.fault is None:
            self._stream.store.on_durable(RecordsCallback(callback))
        else:
            callback(self.fault if consumer.number else None)

    def expired(self, consumer: Consumer) -> None:
        known = self._stream.consumers.get(consumer.name)
        if known is None or known is not consumer or consumer.stopped:
            return
        try:
            self.delete(known)
        except StoreError as fault:
            self.fault = fault

    # Journal

    def recovering(self, journal: Iterable[tuple[int, bytes]]) -> Steps[None]:
        """Recreate the consumers that the journal describes, and start them.

        Raises KeyError or msgspec.MsgspecError for a journal that this version cannot read.
        """
        found: dict[int, tuple[Created, ConsumerConfig, ConsumerState]] = {}
        for kind, body in journal:
            yield RECORD_COST
            record = decode_record(kind, body)
            self._last_number = max(self._last_number, record.number)
            if isinstance(record, Created):
                state = ConsumerState.decode(record.state)
                found[record.number] = (record, _decode_config.decode(record.config), state)
            elif isinstance(record, Deleted):
                found.pop(record.number, None)
            elif record.number in found:
                created, config, state = found[record.number]
                if isinstance(record, Updated):
                    found[record.number] = (created, _decode_config.decode(record.config), state)
                else:
                    apply_ops(state, record.ops)
        store = self._stream.store
        for number, (created, config, state) in found.items():
            unsure = config.ack_policy is AckPolicy.FLOW_CONTROL and not self._stream.engine.store.stopped_cleanly
            if unsure:  # a stream elsewhere that outlived the crash knows deliveries that this journal may lack
                state.delivered_cseq += UNSURE_DELIVERIES
            consumer = Consumer(self._stream, created.name, config, created.created_ns, self, state, number)
            self._add(consumer)
            consumer.start()
            yield RECOVERED_COST
            if unsure and store.healthy:
                self._append(_created(consumer))

    def rewrite(self) -> None:
        """Rewrite the journal, as a job: the records of the stream's other parts, and one per consumer."""
        self._rewriting = True
        self._stream.work.begin(self._rewrite_steps())

    def _rewrite_steps(self) -> Steps[None]:
        store = self._stream.store
        yield STEP  # the caller may be changing a consumer
        try:
            self._rewritten_bytes = yield from store.rewriting(self._present())
        except StoreError:
            self._rewriting = False
            raise
        store.on_durable(self._rewritten)

    def _present(self) -> Iterator[Sequence[tuple[int, bytes]]]:
        """Yield records of the present state, some at a time.

        Changes of a consumer before its `Created` are ignored when the journal is read.
        """
        stream = self._stream
        yield from stream.dedupe.records()
        yield from stream.timed.records()
        yield stream.upstreams.sources.records()
        for piece in pieces([c for c in stream.consumers.values() if c.number], STEP // RECOVERED_COST):
            kept = [consumer for consumer in piece if stream.consumers.get(consumer.name) is consumer]
            for consumer in kept:
                if consumer.log.acked:
                    consumer.settle_acks()
                self.changed(consumer)  # in the old journal, too: it counts until the new one is durable
            yield [*map(_created, kept)]

    def _rewritten(self, fault: StoreError | None) -> None:
        self._rewriting = False

    def rewrite_if_large(self) -> None:
        """Rewrite the journal if it has grown much larger than its contents."""
        bound = max(REWRITE_BYTES, REWRITE_FACTOR * self._rewritten_bytes)
        if not self._rewriting and self._stream.store.journal_bytes > bound:
            self.rewrite()

    def _append(self, record: ConsumerRecord) -> None:
        self._stream.store.append_record(record.kind, record.body)

    def _journaled(self, config: ConsumerConfig) -> bool:
        return self._stream.store.storage == "file" and not config.mem_storage and not config.direct


def _decline(*message: object) -> bool:
    return False


def _created(consumer: Consumer) -> ConsumerRecord:
    body = Created(
        consumer.number, consumer.name, consumer.created_ns, encode(consumer.config), consumer.state.encode()
    )
    return encode_record(body)
