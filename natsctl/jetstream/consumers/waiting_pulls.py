"""Open pull requests in the order of service; no operation costs more because there are very many.

Theory of operation. There is a queue for each rank, and one rank unless the policy is prioritized. `events` is a heap
of times when a request expires or needs an idle heartbeat; a delivery only makes the heartbeat later, so that
nothing is taken out of the heap before its time, and entries of requests that have ended are dropped when they
outnumber the others. `ending` has the requests that a lack of messages ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from natsctl.api.requests import PullRequest

_WITH_PENDING: Final = b"NATS/1.0 %b\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: %d\r\n\r\n"

UNRANKED: Final = 1 << 31
"""Priority of a request without one: after all others."""

SWEEP_FROM: Final = 64
"""Min number of events to drop the ones of ended requests."""


class WaitingPull:
    """One open pull request; times are monotonic ns, 0 = none."""

    __slots__ = (
        "bytes_left",
        "debt",
        "delivered",
        "expires_ns",
        "group",
        "heartbeat_ns",
        "last_ns",
        "left",
        "min_ack_pending",
        "min_pending",
        "no_wait",
        "pin_id",
        "priority",
        "rank",
        "reply",
        "seen_seq",
    )

    def __init__(self, reply: bytes, asked: PullRequest, now_ns: int, formal: bool, seen_seq: int) -> None:
        """Store a request; `formal`: it came as JSON and may contain a group, a pin or a priority.

        `seen_seq` is the stream's last sequence on arrival: before it can be read, nothing ends for want of messages.
        """
        self.reply = reply
        self.seen_seq = seen_seq
        self.left = max(asked.batch, 1)
        self.debt = min(asked.batch - 1, 0)
        self.bytes_left = asked.max_bytes
        self.expires_ns = now_ns + asked.expires if asked.expires else 0
        self.heartbeat_ns = max(asked.idle_heartbeat, 0)
        self.no_wait = asked.no_wait
        self.last_ns = now_ns
        self.delivered = 0
        self.group = asked.group
        self.pin_id = asked.id
        self.min_pending = asked.min_pending
        self.min_ack_pending = asked.min_ack_pending
        self.priority = asked.priority if formal else UNRANKED
        self.rank = 0

    def ends_without_messages(self) -> bool:
        """Return whether there being nothing (more) to deliver ends this request."""
        return self.no_wait and (self.delivered > 0 or not self.expires_ns)

    def next_event_ns(self) -> int:
        """Return when this request must be checked, 0 for never."""
        if not self.heartbeat_ns:
            return self.expires_ns
        beat = self.last_ns + self.heartbeat_ns
        return min(beat, self.expires_ns) if self.expires_ns else beat

    def ended(self, status: bytes) -> bytes:
        """Return the status block of an end, with the messages and bytes still missing."""
        return _WITH_PENDING % (status, self.left + self.debt, self.bytes_left)


class WaitingPulls:
    """The open requests of one consumer; `wanted` is the number of messages that all of them still want."""

    __slots__ = ("_events", "_number", "_queues", "ending", "wanted")

    def __init__(self) -> None:
        self._queues: dict[int, OrderedDict[WaitingPull, None]] = {}
        self._events: list[tuple[int, int, WaitingPull]] = []
        self._number = 0
        self.ending: dict[WaitingPull, None] = {}
        self.wanted = 0

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __iter__(self) -> Iterator[WaitingPull]:
        return chain.from_iterable(self._queues[rank] for rank in sorted(self._queues))

    def __contains__(self, request: WaitingPull) -> bool:
        return request in self._queues.get(request.rank, ())

    def head(self) -> WaitingPull:
        return next(iter(self._queues[min(self._queues)]))

    def add(self, request: WaitingPull, rank: int) -> None:
        """Queue a request after the others of its rank."""
        self.wanted += request.left
        self._queue(request, rank)
        if request.ends_without_messages():
            self.ending[request] = None
        self.watch(request)

    def _queue(self, request: WaitingPull, rank: int) -> None:
        request.rank = rank
        self._queues.setdefault(rank, OrderedDict())[request] = None

    def postpone(self, request: WaitingPull) -> None:
        """Move a request after the others of its rank."""
        self._queues[request.rank].move_to_end(request)

    def remove(self, request: WaitingPull) -> None:
        self.wanted -= request.left
        self._unqueue(request)
        self.ending.pop(request, None)
        if not self._queues:
            self._events.clear()
        elif len(self._events) > SWEEP_FROM and len(self._events) > 2 * len(self):
            self._events = [event for event in self._events if event[2] in self]
            heapify(self._events)

    def _unqueue(self, request: WaitingPull) -> None:
        queue = self._queues[request.rank]
        del queue[request]
        if not queue:
            del self._queues[request.rank]

    def delivered(self, request: WaitingPull, number: int, now_ns: int) -> None:
        """Count messages that a request got; it ends with the last one that it wants."""
        request.delivered += number
        request.last_ns = now_ns
        request.left -= number
        self.wanted -= number
        if request.left <= 0:
            self.remove(request)
        elif request.no_wait:
            self.ending[request] = None

    def watch(self, request: WaitingPull) -> None:
        event_ns = request.next_event_ns()
        if event_ns:
            self._number += 1
            heappush(self._events, (event_ns, self._number, request))

    def next_event_ns(self) -> int:
        """Return when `due` is to be called, 0 for never."""
        return self._events[0][0] if self._events else 0

    def due(self, now_ns: int) -> WaitingPull | None:
        """Return an open request that has expired or needs a heartbeat, to be watched again or to be removed."""
        while self._events and self._events[0][0] <= now_ns:
            request = heappop(self._events)[2]
            if request in self:
                if 0 < request.next_event_ns() <= now_ns:
                    return request
                self.watch(request)
        return None
