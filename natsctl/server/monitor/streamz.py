"""`/streamz` and `/consumerz`: streams and consumers a page at a time, sorted and searched by the server.

Theory of operation. A request looks at every stream or consumer once and reads nothing of it but its names and the
number to sort by; only the rows of the page are described. Both are done in slices, between which the listener serves
others (docs/adr/0021): entries are sorted `SLICE` at a time, and the sorted slices are merged up to the end of the
page. The answer is no snapshot: an object that changes meanwhile is shown with its newer values, in the place that its
older ones gave it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from natsctl.api.times import format_time
from natsctl.server.monitor.connz import name_tag
from natsctl.server.monitor.document import head, pieces
from natsctl.server.monitor.jsz import consumer_detail
from natsctl.server.monitor.query import BadRequestError, Query

if TYPE_CHECKING:
    from natsctl.jetstream.account import JetStreamAccount
    from natsctl.jetstream.consumers.consumer import Consumer
    from natsctl.jetstream.streams.stream import Stream
    from natsctl.server.instance import ServerInstance


DEFAULT_LIMIT: Final = 25
MAX_LIMIT: Final = 1024
"""Rows of a page at most; further ones are on the next page."""
SLICE: Final = 256
"""Objects examined between two turns of other connections: about half a millisecond."""
MAX_SUBJECTS: Final = 8


class Paging(msgspec.Struct, frozen=True, kw_only=True):
    """The page that a request asks for; `descending` puts the largest first."""

    sort: str
    descending: bool
    offset: int
    limit: int


class ListEntry(NamedTuple):
    """One matching object: its sort key, its names (they break ties), and the object."""

    place: int | str
    name: str
    parent: str
    account: str
    found: Any


class Chosen(NamedTuple):
    rows: list[Any]
    total: int


Choosing: TypeAlias = "Generator[bytes, None, Chosen]"
TEXTS: Final = frozenset({"name", "stream", "account"})
"""Orders by a text, ascending unless requested otherwise."""


def read_paging(query: Query, orders: Iterable[str], default: str) -> Paging:
    """Return the page of a query: `sort`, `order`, `offset` and `limit`. Raises BadRequestError."""
    sort = query.text("sort") or default
    if sort not in orders:
        raise BadRequestError(f"invalid sorting option: {sort}")
    order = query.text("order") or ("asc" if sort in TEXTS else "desc")
    if order not in ("asc", "desc"):
        raise BadRequestError(f"invalid order: {order}")
    limit = query.number("limit")
    return Paging(
        sort=sort,
        descending=order == "desc",
        offset=max(query.number("offset"), 0),
        limit=min(limit, MAX_LIMIT) if limit > 0 else DEFAULT_LIMIT,
    )


def choosing(entries: Iterable[ListEntry | None], page: Paging) -> Choosing:
    """Sort entries in slices and return the objects of a page; None means a skipped object.

    Numbers that are equal are ordered by name, whichever the direction.
    """
    texts = page.sort in TEXTS
    backwards, sign = texts and page.descending, -1 if page.descending else 1
    runs: list[list[ListEntry]] = []
    run: list[ListEntry] = []
    for number, entry in enumerate(entries, 1):
        if entry is not None:
            run.append(entry if texts else entry._replace(place=sign * int(entry.place)))
        if number % SLICE == 0:
            runs.append(sorted(run, key=_KEY, reverse=backwards))
            run = []
            yield b""
    runs.append(sorted(run, key=_KEY, reverse=backwards))
    rows: list[Any] = []
    for number, entry in enumerate(merge(*runs, key=_KEY, reverse=backwards)):
        if number >= page.offset + page.limit:
            break
        if number >= page.offset:
            rows.append(entry.found)
        if number % SLICE == SLICE - 1:
            yield b""
    return Chosen(rows, sum(map(len, runs)))


_KEY: Final = itemgetter(slice(0, 4))


class AssetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of both lists: the page, an account and a stream as filters, and a text to search for."""

    page: Paging
    search: str = ""
    account: str = ""
    stream: str = ""

    def keeps(self, account: JetStreamAccount) -> bool:
        """Return whether an account is asked for, by its name or by the name that is shown."""
        return self.account in ("", account.name, name_tag(account.account))


def read_streamz(query: Query) -> AssetOptions:
    return _assets(query, read_paging(query, _STREAM_ORDERS, "name"))


def read_consumerz(query: Query) -> AssetOptions:
    return _assets(query, read_paging(query, _CONSUMER_ORDERS, "pending"))


def _assets(query: Query, page: Paging) -> AssetOptions:
    search, account, stream = query.text("search").casefold(), query.text("acc"), query.text("stream")
    return AssetOptions(page=page, search=search, account=account, stream=stream)


def streamz(server: ServerInstance, options: AssetOptions) -> Iterator[bytes]:
    chosen = yield from choosing(_stream_entries(server, options), options.page)
    rows = (_stream_row(row) for row in chosen.rows if row.js.streams.get(row.name) is row)
    yield from pieces(page_head(server, options.page, chosen.total) | {"streams": rows})


def consumerz(server: ServerInstance, options: AssetOptions) -> Iterator[bytes]:
    chosen = yield from choosing(_consumer_entries(server, options), options.page)
    rows = (_consumer_row(row) for row in chosen.rows if row.stream.consumers.get(row.name) is row)
    yield from pieces(page_head(server, options.page, chosen.total) | {"consumers": rows})


def page_head(server: ServerInstance, page: Paging, total: int) -> dict[str, Any]:
    return {**head(server.broker), "total": total, "offset": page.offset, "limit": page.limit}


def every_stream(server: ServerInstance) -> Iterator[Stream]:
    """Yield the streams of all accounts; streams deleted meanwhile may be missing."""
    for account in list(server.engine.accounts.values()) if server.engine is not None else ():
        yield from list(account.streams.values())


def _stream_entries(server: ServerInstance, options: AssetOptions) -> Iterator[ListEntry | None]:
    place = _STREAM_ORDERS[options.page.sort]
    for stream in every_stream(server):
        if options.keeps(stream.js) and (not options.search or _mentions(stream, options.search)):
            yield ListEntry(place(stream), stream.name, "", stream.js.name, stream)
        else:
            yield None


def _mentions(stream: Stream, search: str) -> bool:
    config = stream.config
    if search in stream.name.casefold() or any(search in subject.casefold() for subject in config.subjects):
        return True
    return search in (config.description or "").casefold()


def _consumer_entries(server: ServerInstance, options: AssetOptions) -> Iterator[ListEntry | None]:
    place, search = _CONSUMER_ORDERS[options.page.sort], options.search
    for stream in every_stream(server):
        yield None  # a stream may be without consumers
        if not options.keeps(stream.js) or options.stream not in ("", stream.name):
            continue
        every = not search or search in stream.name.casefold()
        for consumer in list(stream.consumers.values()):
            if not consumer.config.direct and (every or search in consumer.name.casefold()):
                yield ListEntry(place(consumer), consumer.name, stream.name, stream.js.name, consumer)
            else:
                yield None


def stream_lag(stream: Stream) -> int:
    return max(
        (consumer.undelivered.count for consumer in stream.consumers.values() if not consumer.config.direct), default=0
    )


def redelivered(consumer: Consumer) -> int:
    return 0 if consumer.config.max_deliver == 1 else len(consumer.state.redelivered)


_STREAM_ORDERS: Final[Mapping[str, Callable[[Stream], int | str]]] = {
    "name": lambda stream: stream.name,
    "account": lambda stream: name_tag(stream.account),
    "messages": lambda stream: stream.store.messages,
    "bytes": lambda stream: stream.store.bytes,
    "subjects": lambda stream: stream.store.num_subjects,
    "consumers": lambda stream: stream.consumer_count,
    "lag": stream_lag,
    "last": lambda stream: stream.store.last_ts_ns,
    "created": lambda stream: stream.created_ns,
}
_CONSUMER_ORDERS: Final[Mapping[str, Callable[[Consumer], int | str]]] = {
    "name": lambda consumer: consumer.name,
    "stream": lambda consumer: consumer.stream.name,
    "account": lambda consumer: name_tag(consumer.account),
    "pending": lambda consumer: max(consumer.undelivered.count, 0),
    "ack_pending": lambda consumer: len(consumer.state.pending),
    "redelivered": redelivered,
    "waiting": lambda consumer: consumer.delivery.num_waiting(),
    "delivered": lambda consumer: consumer.state.delivered_cseq,
    "active": lambda consumer: max(consumer.state.last_delivered_ns, consumer.state.last_ack_ns),
    "created": lambda consumer: consumer.created_ns,
}


def _stream_row(stream: Stream) -> dict[str, Any]:
    config, subjects = stream.config, stream.config.subjects
    row: dict[str, Any] = {
        "account": name_tag(stream.account),
        "account_id": stream.js.name,
        "name": stream.name,
        "created": format_time(stream.created_ns),
        "storage": config.storage,
        "subjects": subjects[:MAX_SUBJECTS],
    }
    if len(subjects) > MAX_SUBJECTS:
        row["more_subjects"] = len(subjects) - MAX_SUBJECTS
    if config.description:
        row["description"] = config.description
    if stream.write_error:
        row["write_error"] = stream.write_error
    return {**row, "lag": max(stream_lag(stream), 0), "state": stream.state()}


def _consumer_row(consumer: Consumer) -> dict[str, Any]:
    return {
        "account": name_tag(consumer.account),
        "account_id": consumer.account.name,
        "type": "push" if consumer.config.deliver_subject else "pull",
        "max_ack_pending": consumer.config.max_ack_pending,
        **msgspec.to_builtins(consumer_detail(consumer, with_config=False)),
    }
