"""Time slicing: a client's operations are carried out in slices, so that no client blocks the others.

Theory of operation. A few kilobytes can ask for seconds of work: a publish that reaches fifty thousand subscriptions of
its own sender, or a subject of a thousand tokens among as many patterns. A session looks at the clock while it carries
out a chunk; after `SLICE_NS` it defers the rest, here, and is in `broker.unfinished`. The shell stops reading from it
and calls `resume_work` in later turns, one session after another, for as long as a turn may take. Input that arrives
meanwhile is kept, in order.

Large input comes in pieces (`receive_pieces`); each is parsed only after the one before it is carried out, and the
clock is looked at between two of them. A WebSocket connection unpacks its frames while the pieces are taken, so that
little compressed input that unpacks to very much costs neither time nor memory before its turn.

Work on many subscriptions of one connection is sliced, too: the rest of it is in `broker.long_work`, as iterators that
stop after each few of them, and `do_long_work` resumes it in later turns, for one account after another. Subscriptions
that end receive nothing from the moment of their end (`Routes.begin_leaving`); the review after a change of permissions
looks at each as it comes to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from operator import length_hint, methodcaller
from typing import TYPE_CHECKING, Final

from natsctl.broker.refusals import CloseReason
from natsctl.native import lib
from natsctl.wire.ops import Op

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker
    from natsctl.broker.session import Session


SLICE_NS: Final = 2_000_000
"""Time slice of one session before others have their turn."""
CROWD_SLICE_NS: Final = 1_000_000
"""Time slice of one session while others have deferred work."""
CROWD: Final = 4
"""If more sessions have deferred work, large input waits for its turn, and slices are short."""
SHORT_SLICE_NS: Final = 100_000
LITTLE_INPUT: Final = 4096
"""Bytes that are accepted at once in a crowd: the answer to a PING does not wait for all others."""
LOOK_MASK: Final = 7
"""The clock is looked at after every eighth message or subscription."""
LONG_SUBJECT_BYTES: Final = 128
"""It is also checked after each message with a longer subject, because matching it may take long."""
API_SUBJECTS: Final = b"$JS.API."
"""It is also checked after each JetStream request, because that may be long work."""
MANY_RECIPIENTS: Final = 64
"""It is also looked at after each message with more recipients."""
MANY_LINES: Final = 8192 if lib is not None else 4096
"""Lines that are parsed at once: some milliseconds."""
PIECE_BYTES: Final = 32 << 10 if lib is not None else 8 << 10
"""Bytes of each piece of a chunk with more lines: in plain Python, a millisecond for messages without a payload."""
PIECE_LINES: Final = 6000
"""Lines of a piece: more are not messages, and each of a rare operation takes 2 µs with the native module too."""
count_lines: Callable[[bytes], int] = methodcaller("count", b"\n") if lib is None else lib.count_lines
MAX_DEFERRED_BYTES: Final = 8 << 20
"""Bytes that may arrive after work was deferred; the shell stops reading long before."""


MANY_SUBS: Final = 1000
"""Subscriptions of a connection that are removed, or looked at, at once."""
SUBS_STEP: Final = 64
"""Subscriptions that are, between two looks at the clock."""


class LongWork:
    """Work in later turns: for one account after another, and in order for each."""

    def __init__(self) -> None:
        self._queues: dict[object, deque[Iterator[object]]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, work: Iterator[object], account: object = None) -> None:
        """Do the work of an account, or of the server, in steps."""
        self._queues.setdefault(account, deque()).append(work)

    def step(self) -> None:
        """Do a step for the account that has waited longest."""
        account, queue = next(iter(self._queues.items()))
        ended = next(queue[0], queue) is queue
        del self._queues[account]
        if ended:
            queue.popleft()
        if queue:
            self._queues[account] = queue


class DeferredWork:
    """Work of one session that is still to be carried out: operations, and the input after them."""

    __slots__ = ("inputs", "ops", "size")

    def __init__(self, ops: Iterator[Op] = iter(())) -> None:
        self.ops = ops
        self.inputs: deque[Iterator[bytes]] = deque()
        self.size = 0
        """Bytes that have arrived since, as they came from the transport."""


def slice_end_ns(session: Session) -> int:
    return session.last_active_ns + _slice_ns(session.broker)


def _slice_ns(broker: Broker) -> int:
    waiting = len(broker.unfinished)
    return SLICE_NS if not waiting else CROWD_SLICE_NS if waiting <= CROWD else SHORT_SLICE_NS


def must_wait(session: Session, size: int) -> bool:
    """Return whether an input of so many bytes has to wait because many sessions have deferred work."""
    return size > LITTLE_INPUT and is_crowded(session.broker)


def is_crowded(broker: Broker) -> bool:
    return len(broker.unfinished) > CROWD


def defer(session: Session, rest: Iterator[Op]) -> bool:
    """Keep the rest of a list of operations for a later turn; return False without a rest."""
    if not length_hint(rest):
        return False
    session.deferred = DeferredWork(rest)
    session.broker.unfinished.append(session)
    return True


def defer_input(session: Session, pieces: Iterator[bytes], size: int) -> bool:
    """Keep input, `size` bytes of the transport, for a later turn, unless the session has kept or ended something."""
    if session.deferred is not None or session.login.pending is not None or session.close_reason is not None:
        return False
    session.deferred = DeferredWork()
    session.deferred.inputs.append(pieces)
    session.deferred.size = size
    session.broker.unfinished.append(session)
    return True


def cut(chunk: bytes) -> Iterator[bytes]:
    """Yield a chunk in pieces of at most `PIECE_BYTES`, shorter ones if it has many short lines."""
    for start in range(0, len(chunk), PIECE_BYTES):
        piece = chunk[start : start + PIECE_BYTES]
        size = PIECE_BYTES // (1 + count_lines(piece) // PIECE_LINES)
        if size == PIECE_BYTES:
            yield piece
            continue
        for at in range(0, len(piece), size):
            yield piece[at : at + size]


def receive_pieces(session: Session, pieces: Iterator[bytes], size: int) -> None:
    """Carry out input, `size` bytes of the transport, piece by piece; the rest after a slice waits for its turn."""
    later = session.deferred
    if later is None:
        _receive(session, deque((pieces,)))
        return
    later.inputs.append(pieces)
    later.size += size
    if later.size > MAX_DEFERRED_BYTES:
        session.notice("too much work was sent at once")
        session.close(CloseReason.PROTOCOL_VIOLATION)


def _receive(session: Session, inputs: deque[Iterator[bytes]]) -> None:
    """Carry out input until a slice is over, or until a login has to be decided before the rest."""
    clock = session.broker.clock
    until = clock.monotonic_ns() + _slice_ns(session.broker)
    while inputs:
        piece = next(inputs[0], None)
        if piece is None:
            inputs.popleft()
            continue
        if piece:
            session.receive(piece)
        if session.close_reason is not None:
            session.unread += sum(len(piece) for pieces in inputs for piece in pieces)
            return
        if session.deferred is None:
            waits = session.login.pending is not None
            if not waits and clock.monotonic_ns() <= until:
                continue
            session.deferred = DeferredWork()
            if waits:
                session.broker.pending_logins.append(session)
            else:
                session.broker.unfinished.append(session)
        session.deferred.inputs += inputs
        return


def wait_again(session: Session, later: DeferredWork) -> None:
    """Append input that waited for a login to work deferred meanwhile."""
    again = session.deferred
    if again is not None:
        again.inputs += later.inputs
        again.size += later.size
        return
    session.deferred = later
    if session.login.pending is None:
        session.broker.unfinished.append(session)


def resume_work(session: Session) -> None:
    """Carry out one slice of deferred work; the rest queues after the other sessions."""
    if session.login.pending is not None:
        return  # it goes on when that is decided
    later, session.deferred = session.deferred, None
    if later is None or session.close_reason is not None:
        return
    session.resume(later.ops, b"")
    if session.deferred is not None:
        wait_again(session, later)
    elif later.inputs and session.close_reason is None:
        _receive(session, later.inputs)
