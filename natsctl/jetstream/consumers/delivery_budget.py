"""The messages that a consumer may deliver now: number, rate and form.

Bounds are max_ack_pending, the bytes one read returns, the client's unread output, and for replay `original` the
original pace of the messages. For push consumers there are the rate limit and flow control as well.

Flow control counts bytes sent and not yet answered for. Past half of its window it asks the client to answer; past the
window delivery stalls. Every answer doubles the window up to its maximum. Source: docs/compatibility.md#flow-control.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from natsctl.api.consumer import ReplayPolicy
from natsctl.api.headers import MSG_SIZE, append
from natsctl.api.units import SECOND
from natsctl.jetstream.timers import Alarm
from natsctl.native import lib

if TYPE_CHECKING:
    from natsctl.broker.subscription import Delivery
    from natsctl.jetstream.consumers.consumer import Consumer
    from natsctl.store.message import StoredMessage


FLOW_WINDOW_START: Final = 2 << 20
FLOW_WINDOW_MAX: Final = 32 << 20
"""The first and the largest window of flow control, bytes."""

REPLAY_GAP_NS: Final = 1_000_000
"""Gaps of up to a millisecond are not reproduced."""

_BITS: Final = 8


def headers_only(header: bytes, payload: bytes) -> tuple[bytes, bytes]:
    """Return the header block with the size of the payload added, and no payload."""
    return append(header, ((MSG_SIZE, b"%d" % len(payload)),)), b""


class FlowControl:
    """The window of one push consumer; `pending_reply` is the reply subject of an unanswered request, else b""."""

    __slots__ = ("_covered", "pending_reply", "unanswered", "window")

    def __init__(self) -> None:
        self.window = FLOW_WINDOW_START
        self.unanswered = 0
        self.pending_reply = b""
        self._covered = 0

    def stalled(self) -> bool:
        """Return whether nothing may be sent before the client answers."""
        return self.unanswered > self.window

    def sent(self, size: int) -> bool:
        """Count `size` bytes that were sent and return whether to request an answer now."""
        self.unanswered += size
        if not self.pending_reply:
            return self.unanswered > self.window // 2
        if self.unanswered - self._covered >= self.window:
            self._covered += size
        return False

    def fit(self, deliveries: Sequence[Delivery], start: int, subject_size: int) -> tuple[int, bool]:
        """Count deliveries from `start` on as sent, up to the window; return how many, and whether to ask then."""
        for at in range(start, len(deliveries)):
            _, reply, header, payload = deliveries[at]
            if self.sent(len(reply) + len(header) + len(payload) + subject_size) or self.stalled():
                return at + 1 - start, not self.pending_reply
        return len(deliveries) - start, False

    def ask(self, reply: bytes) -> None:
        """Record that a request with this reply subject was sent after everything so far."""
        self.pending_reply = reply
        self._covered = self.unanswered

    def answered(self, subject: bytes) -> bool:
        """Open the window for an answer to the outstanding request; False for any other subject."""
        if not self.pending_reply or subject != self.pending_reply:
            return False
        self.window = min(self.window * 2, FLOW_WINDOW_MAX)
        self.unanswered = max(self.unanswered - self._covered, 0)
        self.pending_reply, self._covered = b"", 0
        return True

    def forget(self) -> None:
        self.window, self.unanswered, self.pending_reply, self._covered = FLOW_WINDOW_START, 0, b"", 0


class RateLimit:
    """A token bucket in bits: `bits_per_s`, with one largest message as its burst."""

    __slots__ = ("_bits_per_s", "_burst", "_last_ns", "_tokens")

    def __init__(self, bits_per_s: int, burst_bytes: int, now_ns: int) -> None:
        self._bits_per_s = bits_per_s
        self._burst = max(burst_bytes * _BITS, bits_per_s if burst_bytes <= 0 else 0)
        self._tokens = float(self._burst)
        self._last_ns = now_ns

    def wait_ns(self, size: int, now_ns: int) -> int:
        """Take the tokens for `size` bytes and return 0, or take none and return the wait."""
        bits = min(size * _BITS, self._burst)
        grown = self._tokens + (now_ns - self._last_ns) * self._bits_per_s / SECOND
        self._tokens, self._last_ns = min(grown, float(self._burst)), now_ns
        if self._tokens >= bits:
            self._tokens -= bits
            return 0
        return int((bits - self._tokens) * SECOND / self._bits_per_s) + 1


class ReplayPace:
    """The original rhythm, up to the last message that was stored when it began."""

    __slots__ = ("_last_sent_ns", "_last_ts_ns", "_until_seq")

    def __init__(self, until_seq: int) -> None:
        self._until_seq = until_seq
        self._last_ts_ns = 0
        self._last_sent_ns = 0

    def wait_ns(self, seq: int, ts_ns: int, now_ns: int) -> int:
        """Return how long message `seq`, stored at `ts_ns`, has to wait still; 0 means now."""
        if not self._last_ts_ns or seq > self._until_seq:
            return 0
        gap = ts_ns - self._last_ts_ns
        return max(self._last_sent_ns + gap - now_ns, 0) if gap > REPLAY_GAP_NS else 0

    def sent(self, ts_ns: int, now_ns: int) -> None:
        """Record that the message stored at `ts_ns` went out."""
        self._last_ts_ns, self._last_sent_ns = ts_ns, now_ns


UNLIMITED: Final = 1 << 62

FIRST_READ: Final = 16
"""Messages of the first read, before anything is known about their size."""

READ_BYTES: Final = 4 << 20
"""Bytes of messages that one read from the store is meant to return."""

MAX_UNWRITTEN_BYTES: Final = 8 << 20
"""Unread output of a client, in bytes, that makes deliveries wait: far below the broker's limit (max_pending)."""

READ_BATCH: Final = 256
"""Messages read from the store at once."""

CONGESTION_LOOK_NS: Final = 5_000_000
"""Time until a client with too many unread bytes is checked again."""
PARTS_LOOK_NS: Final = 1_000_000
"""Time until it is checked whether the message before was delivered to very many."""


def _first_deliveries(messages: Sequence[StoredMessage], ack_prefix: bytes, cseq: int, left: int) -> list[Delivery]:
    """Return first deliveries; their ack subjects count up from `cseq` and down from `left`."""
    form = ack_prefix.replace(b"%", b"%%") + b"1.%d.%d.%d.%d"
    return [
        (subject, form % (seq, cseq + i, ts_ns, left - i), header, payload)
        for i, (seq, ts_ns, subject, header, payload) in enumerate(messages, 1)
    ]


first_deliveries = _first_deliveries if lib is None else lib.first_deliveries


class DeliveryBudget:
    __slots__ = ("_consumer", "_fit", "_pace", "_replay")

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._fit = FIRST_READ
        self._pace = Alarm(consumer.engine.timers, consumer.schedule)
        self._replay: ReplayPace | None = None
        if consumer.config.replay_policy is ReplayPolicy.ORIGINAL:
            self._replay = ReplayPace(consumer.stream.store.last_seq)

    def stop(self) -> None:
        self._pace.cancel()

    def room(self) -> int:
        consumer = self._consumer
        if not consumer.needs_ack or consumer.config.max_ack_pending <= 0:
            return UNLIMITED
        return max(consumer.config.max_ack_pending - len(consumer.state.pending), 0)

    def pacing(self) -> bool:
        """Return whether replay or a client's unread bytes hold back available messages."""
        return self._pace.armed

    def congested(self, to: bytes) -> bool:
        """Return whether a client on `to` has too many unread bytes; then the consumer checks again a little later."""
        consumer = self._consumer
        if consumer.account.unwritten_bytes(to) <= MAX_UNWRITTEN_BYTES:
            return False
        wait_ns = PARTS_LOOK_NS if consumer.account.postponed.delivers_parts else CONGESTION_LOOK_NS
        self._pace.no_later_than(consumer.engine.clock.monotonic_ns() + wait_ns)
        return True

    def cost(self, to: bytes) -> int:
        """Return the cost of a message to `to`: one for each recipient."""
        return self._consumer.account.recipients(to) or 1

    def deliveries(self, messages: Sequence[StoredMessage]) -> list[Delivery]:
        """Return first deliveries of `messages`; their ack subjects count up from the present state."""
        consumer = self._consumer
        state, left = consumer.state, consumer.undelivered.pending
        found = first_deliveries(messages, consumer.ack_prefix, state.delivered_cseq, left)
        if consumer.config.headers_only:
            return [(subject, reply, *headers_only(header, payload)) for subject, reply, header, payload in found]
        return found

    def take(self, limit: int) -> Sequence[StoredMessage]:
        replay = self._replay
        if replay is None or limit <= 0:
            messages = self._consumer.undelivered.take(min(limit, self._fit))
            if messages:
                self._fit = max(READ_BYTES // (len(messages[-1].payload) + 1), 1)
            return messages
        messages = self._consumer.undelivered.take(1)
        if messages:
            now_ns = self._consumer.engine.clock.monotonic_ns()
            wait_ns = replay.wait_ns(messages[0].seq, messages[0].ts_ns, now_ns)
            if wait_ns:
                self._pace.no_later_than(now_ns + wait_ns)
                return ()
            replay.sent(messages[0].ts_ns, now_ns)
        return messages
