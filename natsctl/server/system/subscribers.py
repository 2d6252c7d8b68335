"""How many clients of an account subscribe to a subject: what `$SYS.DEBUG.SUBSCRIBERS` and `…ACCOUNT.NSUBS` answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from natsctl.api.subjects import is_literal, is_subset

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.routes import Taker
    from natsctl.broker.subscription import Subscription


def subscribers(account: Account, subject: str, queue: bytes | None = None) -> int:
    """Return the number of clients' subscriptions that take a literal `subject`, or that a pattern covers.

    With `queue`, those of that group alone.
    """
    if is_literal(subject):
        clients, groups, _ = account.routes.find(subject.encode())
        takers = (() if queue is not None else clients, *groups)
        return sum(_counted(_subscriptions(group), queue) for group in takers)
    covered = (sub for sub in account.routes.subs if is_subset(sub.subject.decode("utf-8", "replace"), subject))
    return _counted(covered, queue)


def _subscriptions(takers: Iterable[Taker]) -> Iterable[Subscription]:
    return (taker[1] for taker in takers)


def _counted(subs: Iterable[Subscription], queue: bytes | None) -> int:
    return sum(1 for sub in subs if sub.session is not None and (queue is None or sub.queue == queue))
