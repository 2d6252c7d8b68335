"""Time slicing: a client's operations are carried out in slices, so that no client blocks the others.

Theory of operation. A few kilobytes can ask for seconds of work: a publish that reaches fifty thousand subscriptions of
its own sender, or a subject of a thousand tokens among as many patterns. A session looks at the clock while it carries
out a chunk; after `SLICE_NS` it defers the rest, here, and is in `broker.unfinished`. The shell stops reading from it
and calls `resume_work` in later turns, one session after another, for as long as a turn may take. Data that arrives
meanwhile all the same is kept, in order. Above `MAX_DEFERRED_BYTES` it is carried out at once, up to `MAX_FORCED`
slices: little compressed data may unpack to that much, and memory is scarcer than time.

Work on many subscriptions of one connection is sliced, too: the rest of it is in `broker.long_work`, as iterators that
stop after each few of them, and `do_long_work` resumes it in later turns. Subscriptions that end receive nothing from
the moment of their end (`Routes.begin_leaving`); the review after a change of permissions looks at each as it comes
to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from natsctl.broker.refusals import CloseReason
from natsctl.wire.ops import Op

if TYPE_CHECKING:
    from natsctl.broker.session_context import SessionContext


SLICE_NS: Final = 10_000_000
"""Time slice of one session before others have their turn."""
CROWD_SLICE_NS: Final = 1_000_000
"""Time slice of one session while others have deferred work."""
LOOK_MASK: Final = 7
"""The clock is looked at after every eighth message or subscription."""
LONG_SUBJECT_BYTES: Final = 128
"""It is also looked at after each message with a longer subject, which may take long to match."""
MANY_RECIPIENTS: Final = 64
"""It is also looked at after each message with more recipients."""
MAX_DEFERRED_BYTES: Final = 8 << 20
"""Bytes that may arrive after work was deferred: one read of the shell may be unpacked to much more."""
MAX_FORCED: Final = 50
"""Slices that are carried out at once where more arrives."""


MANY_SUBS: Final = 1000
"""Subscriptions of a connection that are removed, or looked at, at once."""
SUBS_STEP: Final = 64
"""Subscriptions that are, between two looks at the clock."""


class DeferredWork:
    """Work of one session that is still to be carried out."""

    __slots__ = ("chunks", "ops", "size")

    def __init__(self, ops: list[Op]) -> None:
        self.ops = ops
        self.chunks: list[bytes] = []
        self.size = 0
        """Bytes in `chunks`."""


def slice_end_ns(session: SessionContext) -> int:
    """Return the monotonic time at which the slice of a session ends."""
    return session.last_active_ns + (CROWD_SLICE_NS if session.broker.unfinished else SLICE_NS)


def defer(session: SessionContext, rest: Iterable[Op]) -> bool:
    """Keep the rest of a chunk for a later turn; return False where there is no rest."""
    ops = list(rest)
    if not ops:
        return False
    session.deferred = DeferredWork(ops)
    session.wait_for_turn()
    return True


def keep(session: SessionContext, chunk: bytes) -> None:
    """Keep a chunk that arrives before the deferred work is done; above MAX_DEFERRED_BYTES carry work out at once."""
    later = session.deferred
    assert later is not None
    later.chunks.append(chunk)
    later.size += len(chunk)
    for _ in range(MAX_FORCED):
        if later is None or later.size <= MAX_DEFERRED_BYTES:
            return
        resume_work(session)
        later = session.deferred
    session.notice("too much work was sent at once")
    session.close(CloseReason.PROTOCOL_VIOLATION)


def resume_work(session: SessionContext) -> None:
    """Carry out one slice of deferred work; the rest queues behind the other sessions."""
    later, session.deferred = session.deferred, None
    if later is None or session.close_reason is not None:
        return
    session.resume(later.ops, b"")
    if session.close_reason is not None:
        return
    again = session.deferred
    if again is not None:
        again.chunks, again.size = later.chunks, later.size
    elif later.chunks:
        session.receive(b"".join(later.chunks))
