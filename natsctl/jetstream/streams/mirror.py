"""A mirror: the origin's messages under their own sequences and times.

Theory of operation. The mirror continues after its own last sequence, so nothing has to be recorded. Sequences that the
origin no longer has, or that the filter leaves out, become gaps. An origin that ends below the mirror's last sequence
was recreated, or lost messages: its next messages would have sequences that are in use, so this is shown as an error
until it has passed them; every connection requests the origin's last sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import field

from natsctl.api import headers
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import InvalidJSONError, decode
from natsctl.api.consumer import ConsumerConfig, DeliverPolicy
from natsctl.api.errors import ErrCode
from natsctl.api.model import Model
from natsctl.api.stream import DiscardPolicy, RetentionPolicy, StreamSource, StreamSourceInfo, StreamState
from natsctl.jetstream.advisories import nuid
from natsctl.jetstream.streams import origin
from natsctl.jetstream.streams.pending_message import PendingMessage
from natsctl.jetstream.streams.publish_checks import check_account
from natsctl.jetstream.streams.upstream import OriginMessage, StoreLaterError, Upstream
from natsctl.store.filters import Filters

if TYPE_CHECKING:
    from natsctl.broker.subscription import Subscription
    from natsctl.jetstream.streams.stream import Stream


_RANDOM: Final = 8


class _Seen(Model):
    """The used part of the origin's info."""

    state: StreamState = field(default_factory=lambda: StreamState())
    error: ApiError | None = None


class Mirror(Upstream):
    letter = "M"
    setup_failed = ErrCode.MIRROR_CONSUMER_SETUP_FAILED
    requires_flow_control = ErrCode.MIRROR_CONSUMER_REQUIRES_ACK_FC

    def __init__(self, stream: Stream, source: StreamSource) -> None:
        super().__init__(stream, source)
        self._question: Subscription | None = None

    def stop(self) -> None:
        self._forget_question()
        super().stop()

    def info(self) -> StreamSourceInfo:
        info = super().info()
        if not self.requested:
            info.filter_subject = ""  # nats-server learns of it with its first request
        return info

    def request(self) -> ConsumerConfig:
        store, source = self._stream.store, self.source
        config = ConsumerConfig(
            name=origin.mirror_consumer(self._stream),
            filter_subject=source.filter_subject,
            filter_subjects=[transform.src or ">" for transform in source.subject_transforms],
        )
        if store.last_seq:
            config.deliver_policy, config.opt_start_seq = DeliverPolicy.BY_START_SEQUENCE, store.last_seq + 1
        else:
            origin.set_first_start(config, source)
        return config

    def connected(self, delivered_seq: int, identity: str) -> int:
        store = self._stream.store
        if store.last_seq < delivered_seq:
            store.skip_to(delivered_seq)
        if store.messages:
            self._ask_state()
        self._stream.upstreams.taken(self.lag)
        return max(delivered_seq, store.last_seq)

    def stored_seq(self) -> int:
        return self._stream.store.last_seq

    def store_messages(self, messages: Sequence[OriginMessage]) -> None:
        """Store messages as they are. Raises StoreError, or StoreLaterError when a limit refuses one."""
        stream, mappings = self._stream, self.transforms
        store, config = stream.pipeline.store_mirrored, stream.config
        picky = stream.usage.limited or (config.discard is DiscardPolicy.NEW and stream.limits.any)
        transformed, largest = config.subject_transform is not None, config.max_msg_size
        if stream.usage.full:
            raise StoreLaterError
        if messages[0][0] <= stream.store.last_seq:  # a purge moved the mirror past messages in flight
            messages = [message for message in messages if message[0] > stream.store.last_seq]
        judged = mappings or transformed or picky or largest >= 0 or config.retention is RetentionPolicy.INTEREST
        if not judged and messages and stream.pipeline.copies_plainly and not any(message[3] for message in messages):
            stream.pipeline.store_copies(messages)
            messages = ()
        for seq, ts_ns, subject, header, payload in messages:
            if mappings:
                subject = mappings.apply(subject)
            if 0 <= largest < len(header) + len(payload):
                continue
            if transformed or picky:
                message = PendingMessage(subject, b"", header, payload)
                stream.pipeline.map_subject(message)
                subject = message.subject
                if picky and self._refuses(message):
                    raise StoreLaterError
            if stream.retention.refuses(subject):
                stream.store.skip_to(seq)
            elif header:
                self._take_with_header(seq, ts_ns, subject, origin.without_conditions(header), payload)
            else:
                store(seq, ts_ns, subject, header, payload)
        self._stream.upstreams.taken(self.lag)

    def _refuses(self, message: PendingMessage) -> bool:
        refusal = check_account(self._stream, message)
        refusal = refusal or self._stream.limits.refuse(message.subject, message.header, message.payload)
        return refusal is not None

    def _take_with_header(self, seq: int, ts_ns: int, subject: bytes, header: bytes, payload: bytes) -> None:
        stream, config = self._stream, self._stream.config
        stream.pipeline.store_mirrored(seq, ts_ns, subject, header, payload)
        if config.allow_rollup_hdrs and not config.deny_purge:
            rollup = headers.get(header, headers.ROLLUP)
            if rollup in (b"sub", b"all"):
                stream.work.begin(stream.purging(Filters((subject,)) if rollup == b"sub" else None, below_seq=seq))

    # An origin that ends too early

    def _ask_state(self) -> None:
        stream = self._stream
        self._forget_question()
        reply = b"$JSC.R." + nuid(stream.engine.rng, _RANDOM).encode()
        self._question = stream.account.subscribe(reply, self._on_state)
        subject = origin.api_subject(self.source, f"STREAM.INFO.{self.source.name}")
        stream.account.publish(stream.account.mapped(subject), reply, b"", b"")

    def _forget_question(self) -> None:
        if self._question is not None:
            self._stream.account.unsubscribe(self._question)
            self._question = None

    def _on_state(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, from_: object) -> None:
        self._forget_question()
        try:
            answer = decode(payload, _Seen)
        except InvalidJSONError:
            return
        here, there = self._stream.store.last_seq, answer.state.last_seq
        if answer.error is None and there < here:
            reason = (
                f"origin stream ends at sequence {there}, the mirror at {here}: it is not the stream that was mirrored"
            )
            self.error = error(self.setup_failed, err=reason)
