"""`/connz`: the connections, open and closed, a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from natsctl.api.subjects import overlaps
from natsctl.api.times import format_time
from natsctl.broker.session import Session
from natsctl.server.monitor.ages import wall_time
from natsctl.server.monitor.connection import Show, client, leaf
from natsctl.server.monitor.document import whole
from natsctl.server.monitor.query import Query
from natsctl.server.monitor.refused import BadRequestError

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker
    from natsctl.broker.leaf.peer import LeafPeer
    from natsctl.server.view import ServerView

DEFAULT_LIMIT: Final = 1024
"""Connections of a page where nobody says. Source: nats-server, DefaultConnListSize."""


class ConnState(IntEnum):
    """Which connections are asked for, as the wire numbers them."""

    OPEN = 0
    CLOSED = 1
    ALL = 2


_STATES: Final = {
    "": ConnState.OPEN, "open": ConnState.OPEN, "closed": ConnState.CLOSED, "any": ConnState.ALL, "all": ConnState.ALL,
}  # fmt: skip


class ConnzOptions(msgspec.Struct, kw_only=True):
    """What is asked of `connz`; names are those of the system account's requests."""

    sort: str = ""
    auth: bool = False
    subscriptions: bool = False
    subscriptions_detail: bool = False
    offset: int = 0
    limit: int = 0
    cid: int = 0
    mqtt_client: str = ""
    state: ConnState = ConnState.OPEN
    user: str = ""
    acc: str = ""
    filter_subject: str = ""


def read(query: Query) -> ConnzOptions:
    """Return the options of a query. Raises BadRequestError."""
    auth = query.flag("auth")
    subscriptions, detail = query.subscriptions()
    offset, limit, cid = query.number("offset"), query.number("limit"), query.unsigned("cid")
    state = _STATES.get(query.text("state").lower())
    if state is None:
        raise BadRequestError(f"Error decoding state for {query.text('state')}")
    return ConnzOptions(
        sort=query.text("sort"),
        auth=auth,
        subscriptions=subscriptions,
        subscriptions_detail=detail,
        offset=offset,
        limit=limit,
        cid=cid,
        mqtt_client=query.text("mqtt_client"),
        state=state,
        user=query.text("user"),
        acc=query.text("acc"),
    )


def connz(server: ServerView, options: ConnzOptions) -> dict[str, Any]:
    """Return a page of connections. Raises BadRequestError."""
    found: dict[str, Any] = whole(connz_in_pieces(server, options))
    return found


def connz_in_pieces(server: ServerView, options: ConnzOptions) -> dict[str, Any]:
    """Return a page of connections, to be made one after the other. Raises BadRequestError."""
    _check(options)
    broker = server.broker
    offset = max(options.offset, 0)
    limit = 1 if options.cid > 0 else options.limit if options.limit > 0 else DEFAULT_LIMIT
    unknown = bool(options.acc) and options.acc not in broker.accounts
    total, chosen = (0, []) if unknown else _choose(broker, options)
    page = _sorted(broker, chosen, options.sort)[offset : offset + limit]
    show = Show(options.auth, options.subscriptions, options.subscriptions_detail, broker.clock)
    return {
        "server_id": "" if unknown else broker.server_id,
        "now": format_time(broker.clock.now_ns()),
        "num_connections": len(page),
        "total": total,
        "offset": offset,
        "limit": limit,
        "connections": None if unknown else _entries(page, show),
    }


def _entries(page: Sequence[Session | LeafPeer], show: Show) -> Iterator[dict[str, Any]]:
    return (client(one, show) if isinstance(one, Session) else leaf(one, show) for one in page)


def _check(options: ConnzOptions) -> None:
    if options.sort and options.sort not in _ORDERS:
        raise BadRequestError(f"invalid sorting option: {options.sort}")
    if options.sort in ("stop", "reason") and options.state != ConnState.CLOSED:
        raise BadRequestError(f"sort by {options.sort} only valid on closed connections")
    if options.filter_subject not in ("", ">") and not options.acc:
        raise BadRequestError("filter by subject only valid with account filtering")


def _choose(broker: Broker, options: ConnzOptions) -> tuple[int, list[Session | LeafPeer]]:
    """Return how many connections there are of the state and the account, and those that are asked for."""
    opened: list[Session | LeafPeer] = []
    ended: list[Session | LeafPeer] = []
    account = options.acc
    if options.state in (ConnState.OPEN, ConnState.ALL):
        opened = [one for one in _open(broker) if not account or one.account.name == account]
    if options.state in (ConnState.CLOSED, ConnState.ALL):
        ended = [one for one in broker.closed if not account or one.account.name == account]
    total = len(opened) + len(ended)
    if options.cid > 0:
        opened = [one for one in opened if one.cid == options.cid]
        ended = [] if opened else [one for one in ended if one.cid == options.cid]
    if options.filter_subject not in ("", ">"):
        wanted = options.filter_subject.encode()
        opened = [one for one in opened if any(overlaps(wanted, subject) for subject in _subjects(one))]
    if options.mqtt_client:
        return total, []
    return total, [one for one in chain(opened, ended) if not options.user or one.user == options.user]


def _open(broker: Broker) -> Iterator[Session | LeafPeer]:
    yield from broker.sessions.values()
    yield from broker.leafs.values()


def _subjects(one: Session | LeafPeer) -> Iterator[bytes]:
    return (sub.subject for sub in one.subs.values()) if isinstance(one, Session) else iter(one.subjects())


def _sorted(broker: Broker, found: list[Session | LeafPeer], order: str) -> list[Session | LeafPeer]:
    key, descending = _ORDERS[order]
    return sorted(found, key=lambda one: key(broker, one), reverse=descending)


def _stop_ns(one: Session | LeafPeer) -> int:
    return one.stop_ns if isinstance(one, Session) else 0


def _count_subs(one: Session | LeafPeer) -> int:
    return (len(one.subs) or one.left_count) if isinstance(one, Session) else sum(1 for _ in one.subjects())


def _reason(one: Session | LeafPeer) -> str:
    return one.close_reason.value if isinstance(one, Session) and one.close_reason is not None else ""


_Key = Callable[["Broker", "Session | LeafPeer"], Any]
_CID: Final[tuple[_Key, bool]] = (lambda broker, one: one.cid, False)
_ORDERS: Final[dict[str, tuple[_Key, bool]]] = {
    "": _CID,
    "cid": _CID,
    "start": _CID,
    "subs": (lambda broker, one: _count_subs(one), True),
    "pending": (lambda broker, one: one.pending_bytes, True),
    "msgs_to": (lambda broker, one: one.out_msgs, True),
    "msgs_from": (lambda broker, one: one.in_msgs, True),
    "bytes_to": (lambda broker, one: one.out_bytes, True),
    "bytes_from": (lambda broker, one: one.in_bytes, True),
    "last": (lambda broker, one: wall_time(broker.clock, one.last_data_ns), True),
    "idle": (lambda broker, one: -one.last_data_ns, True),
    "uptime": (lambda broker, one: (_stop_ns(one) or broker.clock.now_ns()) - one.start_ns, False),
    "stop": (lambda broker, one: _stop_ns(one), True),
    "reason": (lambda broker, one: _reason(one), False),
    "rtt": (lambda broker, one: one.rtt_ns, True),
}
"""How connections are put in order: by what, and whether the largest comes first."""
