"""Runs of messages on one route: handed as a whole to takers that want them so, instead of one by one.

A run that begins with a message with headers may have messages with and without; only streams take it.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from natsctl.broker.message_trace import TRACE_DEST
from natsctl.broker.routes import DOT
from natsctl.wire.ops import PUB, Op

if TYPE_CHECKING:
    from natsctl.broker.session import Session

RESERVED_HEADS: Final = frozenset({b"_R_", b"_GR", b"$JS", b"$GR"})
"""First three bytes of reply prefixes that belong to the server: what the hot path looks at."""
RESERVED_FIRST: Final = frozenset(b"$_")
"""First byte of subjects that belong to the server, and of a few that do not."""
RUN_MIN: Final = 4
"""Publishes in a row on one route that are worth a look for a taker of runs."""
SHORT_RUNS: Final = 4
"""Runs below that after which no more are looked for among what arrived together."""


def publish_runs(session: Session, ops: list[Op]) -> list[Op]:
    """Hand leading runs of messages on one route to takers of runs, and return the operations that are left."""
    start = short = 0
    while len(ops) - start >= RUN_MIN and ops[start][0] == PUB and short < SHORT_RUNS:
        subject = ops[start][1]
        if subject[0] in RESERVED_FIRST:
            break
        headed = ops[start][3] != b""
        take = session.account.run_taker(subject, session, headed)
        if take is None:
            break
        end = start
        for op in islice(ops, start, None):
            if (
                op[0] != PUB
                or op[1] != subject
                or (op[3] and not _passes(op[3], headed))
                or op[2][:3] in RESERVED_HEADS
            ):
                break
            end += 1
        if end - start < RUN_MIN:
            more = _one_route(session, ops, start, headed)
            if more > end:
                subject, end = b"", more
            short += end - start < RUN_MIN
        if end == start:
            break
        session.in_msgs += end - start
        session.in_bytes += sum([len(op[3]) + len(op[4]) for op in ops[start:end]])
        take(subject, ops[start:end])
        start = end
    return ops[start:] if start else ops


def _passes(header: bytes, headed: bool) -> bool:
    """Return whether a message with headers may be in a run: one that begins with such, and is not traced."""
    return headed and TRACE_DEST not in header


def _one_route(session: Session, ops: list[Op], start: int, headed: bool) -> int:
    """Return where messages end that surely take the route of the first one."""
    size, longer = session.account.shared_size(ops[start][1])
    if not size:
        return start
    shared, end = ops[start][1][:size], start
    for op in islice(ops, start, None):
        if op[0] != PUB or op[1][:size] != shared or op[2][:3] in RESERVED_HEADS:
            break
        if op[3] and not _passes(op[3], headed):
            break
        subject = op[1]
        if len(subject) == size or (
            subject.find(b".", size) >= 0 and not (longer and b".." not in subject and subject[-1] != DOT)
        ):
            break
        end += 1
    return end
