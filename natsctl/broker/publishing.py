"""Publishing of runs: each part on one route goes as a whole to a recipient that accepts runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.wire.ops import RUN, Op
from natsctl.wire.publish_run import RUN_MIN

if TYPE_CHECKING:
    from natsctl.broker.session import Session
    from natsctl.wire.publish_run import PublishRun


SHORT_RUNS: Final = 4
"""Parts below `RUN_MIN` messages after which a run is not searched for more."""


def one_by_one(ops: list[Op]) -> list[Op]:
    """Return the same operations, each message one of its own."""
    if RUN not in [op[0] for op in ops]:
        return ops
    single: list[Op] = []
    for op in ops:
        if op[0] == RUN:
            single += op[1].ops()
        else:
            single.append(op)
    return single


def publish_run(session: Session, run: PublishRun) -> list[Op]:
    """Deliver a run part by part, each on one route; return the messages for which no recipient accepts runs."""
    account, short, start, count = session.account, 0, 0, len(run)
    if run.has_headers and any(map(account.config.asks_for_trace, run.headers())):
        return run.ops()
    while start < count and short < SHORT_RUNS:
        subject = run.subject(start)
        publish_part = account.run_recipient(subject, session, run.has_headers)
        if publish_part is None:
            break
        end = run.same_subject(start) if subject[:1] != b"$" else count  # acks of one consumer take one route
        if end - start < min(RUN_MIN, count - start):
            short += 1
            size, longer = account.shared_size(subject)
            more = run.same_route(start, size, longer) if size else 0
            if more > end:
                subject, end = b"", more
        part = run if end - start == count else run.part(start, end)
        session.in_msgs += len(part)
        session.in_bytes += part.bytes
        publish_part(subject, part)
        start = end
    return run.ops()[start:] if start < count else []
