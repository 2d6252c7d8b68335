"""Publishing of runs: messages of one client on one route.

A run is handed as a whole to subscribers that accept batches. A run that begins with a message with headers may have
messages with and without; only streams accept it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from natsctl.broker.routes import DOT
from natsctl.native import lib
from natsctl.wire.ops import PUB, RUN, Op

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.session import Session
    from natsctl.native._native import PublishRun


RESERVED_HEADS: Final = frozenset({b"_R_", b"_GR", b"$JS", b"$GR"})
"""First three bytes of reply prefixes that belong to the server: what the hot path looks at."""
RESERVED_FIRST: Final = frozenset(b"$_")
"""First byte of subjects that belong to the server, and of a few that do not."""
RUN_MIN: Final = 4
"""Publishes in a row on one route that are worth a look for a recipient of runs."""
SHORT_RUNS: Final = 4
"""Runs below that after which no more are looked for among what arrived together."""


def one_by_one(ops: list[Op]) -> list[Op]:
    """Return the same operations, each message one of its own."""
    if lib is None or RUN not in [op[0] for op in ops]:
        return ops
    found: list[Op] = []
    for op in ops:
        if op[0] == RUN:
            found += op[1].ops()
        else:
            found.append(op)
    return found


def publish_runs(session: Session, ops: list[Op]) -> list[Op]:
    """Deliver leading runs of messages on one route to recipients of runs, and return the remaining operations."""
    done = 0
    while done < len(ops) and ops[done][0] == RUN:
        rest = _publish_run(session, ops[done][1])
        done += 1
        if rest:
            return rest + one_by_one(ops[done:])
    ops = one_by_one(ops[done:] if done else ops)
    return _publish_op_runs(session, ops) if len(ops) >= RUN_MIN else ops


def _publish_run(session: Session, run: PublishRun) -> list[Op]:
    """Deliver a run part by part, each on one route; return the messages that no recipient of runs takes."""
    account, short, start, count = session.account, 0, 0, len(run)
    while start < count and short < SHORT_RUNS:
        subject = run.subject
        take = account.run_recipient(subject, session, False)
        if take is None:
            break
        size, longer = 0, False
        end = run.one_subject() if subject[:1] != b"$" else len(run)  # acks of one consumer take one route
        if end < min(RUN_MIN, count - start):
            short += 1
            size, longer = account.shared_size(subject)
            more = run.one_route(size, longer) if size else 0
            if more > end:
                subject, end = b"", more
        part = run if end == len(run) else run.part(0, end)
        session.in_msgs += end
        session.in_bytes += part.bytes
        take(subject, part)
        start += end
        if start < count:
            run = run.part(end, len(run))
    return run.ops() if start < count else []


def _publish_op_runs(session: Session, ops: list[Op]) -> list[Op]:
    """Do what `publish_runs` does with messages that are operations of their own."""
    start = short = 0
    while len(ops) - start >= RUN_MIN and ops[start][0] == PUB and short < SHORT_RUNS:
        subject = ops[start][1]
        if subject[0] in RESERVED_FIRST:
            break
        headed = ops[start][3] != b""
        take = session.account.run_recipient(subject, session, headed)
        if take is None:
            break
        end, size = _headed_run(ops, start, subject, session.account) if headed else _plain_run(ops, start, subject)
        if end - start < RUN_MIN:
            more = _one_route(session, ops, start, headed)
            if more > end:
                subject, end, size = b"", more, _bytes_of(ops[start:more])
            short += end - start < RUN_MIN
        if end == start:
            break
        session.in_msgs += end - start
        session.in_bytes += size
        take(subject, ops[start:end])
        start = end
    return ops[start:] if start else ops


def _plain_run(ops: list[Op], start: int, subject: bytes) -> tuple[int, int]:
    """Return where messages on `subject` without headers end, and their bytes."""
    end = start
    for op in islice(ops, start, None):
        if op[0] != PUB or op[1] != subject or op[3] or op[2][:3] in RESERVED_HEADS:
            break
        end += 1
    return end, _bytes_of(ops[start:end])


def _headed_run(ops: list[Op], start: int, subject: bytes, account: Account) -> tuple[int, int]:
    """Return where messages on `subject` end, with headers or without, and their bytes."""
    end = start
    for op in islice(ops, start, None):
        if op[0] != PUB or op[1] != subject or not _passes(op[3], True, account) or op[2][:3] in RESERVED_HEADS:
            break
        end += 1
    return end, _bytes_of(ops[start:end])


def _bytes_of(ops: Sequence[Op]) -> int:
    """Return the bytes of messages, with their headers."""
    return sum([len(op[3]) + len(op[4]) for op in ops])


def _passes(header: bytes, headed: bool, account: Account) -> bool:
    """Return whether a message with headers may be in a run: one that begins with such, and is not traced."""
    return headed and not account.config.asks_for_trace(header)


def _one_route(session: Session, ops: list[Op], start: int, headed: bool) -> int:
    """Return where messages end that surely take the route of the first one."""
    size, longer = session.account.shared_size(ops[start][1])
    if not size:
        return start
    shared, end = ops[start][1][:size], start
    for op in islice(ops, start, None):
        if op[0] != PUB or op[1][:size] != shared or op[2][:3] in RESERVED_HEADS:
            break
        if op[3] and not _passes(op[3], headed, session.account):
            break
        subject = op[1]
        if len(subject) == size or (
            subject.find(b".", size) >= 0 and not (longer and b".." not in subject and subject[-1] != DOT)
        ):
            break
        end += 1
    return end
