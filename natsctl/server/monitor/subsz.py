"""`/subsz`: the number of subscriptions, and a list of them on request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from natsctl.api.subjects import is_literal, is_valid_subject
from natsctl.api.times import format_time
from natsctl.server.monitor.connz import subscription_detail
from natsctl.server.monitor.document import go_number, whole
from natsctl.server.monitor.query import BadRequestError, Query

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.subscription import Subscription
    from natsctl.server.view import ServerView

DEFAULT_LIMIT: Final = 1024
"""Default number of subscriptions of a page. Source: nats-server, DefaultSubListSize."""

FANOUT_ROUTES: Final = 4096
"""Cached routes per account that fan-outs are taken from."""


class SubszOptions(msgspec.Struct, kw_only=True):
    """Options of `subsz`."""

    offset: int = 0
    limit: int = 0
    subscriptions: bool = False
    account: str = ""
    test: str = ""


def read(query: Query) -> SubszOptions:
    """Return the options of a query. Raises BadRequestError."""
    return SubszOptions(
        subscriptions=query.flag("subs"),
        offset=query.number("offset"),
        limit=query.number("limit"),
        account=query.text("acc"),
        test=query.text("test"),
    )


def subsz(server: ServerView, options: SubszOptions) -> dict[str, Any]:
    """Return counters of the subscriptions, and a page of them where asked for. Raises BadRequestError."""
    found: dict[str, Any] = whole(subsz_in_pieces(server, options))
    return found


def subsz_in_pieces(server: ServerView, options: SubszOptions) -> dict[str, Any]:
    """Return the document of `subsz`, with the subscriptions as an iterator. Raises BadRequestError."""
    if options.test and not (is_valid_subject(options.test) and is_literal(options.test)):
        raise BadRequestError(f"invalid test subject, must be valid publish subject: {options.test}")
    broker = server.broker
    accounts = [one for one in broker.accounts.values() if options.account in ("", one.name)]
    offset, limit = max(options.offset, 0), options.limit if options.limit > 0 else DEFAULT_LIMIT
    answer = {
        "server_id": broker.server_id,
        "now": format_time(broker.clock.now_ns()),
        **subscription_stats(accounts),
        "total": 0,
        "offset": offset,
        "limit": limit,
    }
    if options.subscriptions:
        total, found = _found(accounts, options.test.encode())
        answer["total"] = total
        if offset < total:
            page = islice(found, offset, offset + limit)
            answer["subscriptions_list"] = (subscription_detail(sub, account) for account, sub in page)
    return answer


def _found(accounts: list[Account], test: bytes) -> tuple[int, Iterator[tuple[Account, Subscription]]]:
    """Return how many subscriptions there are, and all of them; a subject in `test` is one they must take."""
    if test:
        taking = [(account, sub) for account in accounts for sub in account.routes.subs.taking(test)]
        return len(taking), iter(taking)
    every = ((account, sub) for account in accounts for sub in account.routes.subs)
    return sum(account.subscriptions for account in accounts), every


def subscription_stats(accounts: Iterable[Account]) -> dict[str, Any]:
    """Return the counters of the subscription tables of accounts together."""
    count = cached = inserts = matched = walks = most = total = looked = 0
    for account in accounts:
        routes = account.routes
        count += routes.subs.count
        inserts += routes.subs.inserted
        cached += len(routes.exact)
        walks += routes.walks
        matched += max(account.gone.plus(account.sessions).in_msgs, routes.walks)
        for clients, queues, handlers in islice(routes.exact.values(), FANOUT_ROUTES):
            fanout = len(clients) + len(queues) + len(handlers)
            most, total, looked = max(most, fanout), total + fanout, looked + 1
    return {
        "num_subscriptions": count,
        "num_cache": cached,
        "num_inserts": inserts,
        "num_removes": inserts - count,
        "num_matches": matched,
        "cache_hit_rate": go_number((matched - walks) / matched if matched else 0.0),
        "max_fanout": most,
        "avg_fanout": go_number(total / looked if looked else 0.0),
    }
