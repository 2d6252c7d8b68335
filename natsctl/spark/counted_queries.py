"""Queries that the server's figures answer: numbers of messages, also by subject, first and last sequences.

They are answered in milliseconds; Spark takes ten seconds to start. Only the usual forms are understood, and only a
whole query: Spark answers the others. Rows and column names are the same as Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from natsctl.api.stream import StreamState
from natsctl.client.manager import Manager
from natsctl.client.stream_state import next_message
from natsctl.spark.sql_tables import Catalogue, relations, tokens


class Facts(NamedTuple):
    """A server's figures of a stream; `subjects` counts messages by subject, and may be empty where not needed.

    `first` and `last` are the sequences of messages that are there, None in an empty stream.
    """

    messages: int
    first: int | None = None
    last: int | None = None
    subjects: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class CountedQuery:
    """A query that needs no message: its stream, and its columns with their figures."""

    table: str
    counts: tuple[str, ...]
    """`subject`, `count(1)`, `count(DISTINCT subject)`, `min(seq)` or `max(seq)`."""
    columns: list[str]
    grouped: bool = False
    order: int | None = None
    """The column that orders the rows."""
    descending: bool = False
    limit: int | None = None

    @property
    def numbers(self) -> frozenset[str]:
        """The columns that are numbers."""
        return frozenset(name for name, what in zip(self.columns, self.counts, strict=True) if what != "subject")

    def answer(self, facts: Facts) -> list[tuple[Any, ...]]:
        """Return the rows."""
        groups = sorted(facts.subjects.items()) if self.grouped else [("", facts.messages)]
        rows = []
        for subject, messages in groups:
            values = {
                "subject": subject,
                "count(1)": messages,
                "count(DISTINCT subject)": len(facts.subjects),
                "min(seq)": facts.first,
                "max(seq)": facts.last,
            }
            rows.append(tuple(values[what] for what in self.counts))
        if (order := self.order) is not None:
            rows.sort(key=lambda row: _sortable(row[order]), reverse=self.descending)
        return rows[: self.limit]


def _sortable(value: Any) -> Any:
    """Return a key for Spark's order of texts: by their bytes."""
    return value.encode() if isinstance(value, str) else value


_ITEM: Final = re.compile(
    r"(?P<what>subject|count \( (?:\*|1|seq|distinct subject) \)|(?:min|max) \( seq \))"
    r"(?: as (?P<alias>\w+)| (?P<bare>\w+))?",
    re.IGNORECASE,
)
_QUERY: Final = re.compile(
    r"select (?P<items>.+?) from _table_(?: group by (?P<group>\w+))?"
    r"(?: order by (?P<order>\w+|count \( \* \))(?: (?:asc|(?P<desc>desc)))?)?(?: limit (?P<limit>\d+))?(?: ;)?",
    re.IGNORECASE,
)


def counted(query: str) -> CountedQuery | None:
    """Return the figures of one stream that a query asks for, or None if the server does not have them."""
    named = relations(query)
    if len(named) != 1:
        return None
    plain = f"{query[: named[0].start]} _table_ {query[named[0].end :]}"
    match = _QUERY.fullmatch(" ".join(token.text for token in tokens(plain)))
    if match is None:
        return None
    items = [_ITEM.fullmatch(text) for text in match["items"].split(" , ")]
    found = [item for item in items if item is not None]
    counts = tuple(_spelled(item["what"]) for item in found)
    columns = [item["alias"] or item["bare"] or _title(item["what"]) for item in found]
    order = _order(match["order"], counts, columns)
    grouped = match["group"] is not None
    allowed = {"subject", "count(1)"} if grouped else {"count(1)", "count(DISTINCT subject)", "min(seq)", "max(seq)"}
    if len(found) < len(items) or not {*counts} <= allowed or (order is None and match["order"]):
        return None
    if grouped and not _is_subject(match["group"], counts):
        return None
    limit = int(match["limit"]) if match["limit"] else None
    return CountedQuery(named[0].name, counts, columns, grouped, order, match["desc"] is not None, limit)


def _spelled(what: str) -> str:
    """Return the figure of a column as in `CountedQuery.counts`."""
    text = what.lower().replace(" ( ", "(").replace(" )", "")
    if text == "count(distinct subject":
        return "count(DISTINCT subject)"
    if text.startswith("count("):
        return "count(1)"
    return text if text == "subject" else f"{text})"


def _title(what: str) -> str:
    """Return the name that Spark gives to a column without an alias."""
    if what.lower() == "subject":
        return what
    return f"count({what.split()[2]})" if what.lower() == "count ( seq )" else _spelled(what)


def _is_subject(group: str, counts: tuple[str, ...]) -> bool:
    """Return whether rows are grouped by the subject: by its name or by its column's number."""
    if group.isdecimal():
        return 0 < int(group) <= len(counts) and counts[int(group) - 1] == "subject"
    return group.lower() == "subject"


def _order(text: str | None, counts: tuple[str, ...], columns: list[str]) -> int | None:
    """Return the column that orders the rows: given as its number, its name, or `count(*)`."""
    if text is None:
        return None
    if text.isdecimal():
        return int(text) - 1 if 0 < int(text) <= len(columns) else None
    names = [name.lower() for name in columns] if text.isidentifier() else [*counts]
    wanted = text.lower() if text.isidentifier() else "count(1)"
    return names.index(wanted) if wanted in names else None


def counted_query(query: str, catalogue: Catalogue) -> tuple[CountedQuery, str] | None:
    """Return the figures that a query asks for, and their stream; None for a query that Spark must answer."""
    found = counted(query)
    table = catalogue.find(found.table) if found is not None else None
    return (found, table.stream) if found is not None and table is not None and table.kind == "stream" else None


async def facts_for(manager: Manager, stream: str, query: CountedQuery) -> Facts:
    """Return the server's figures of the stream that the query needs."""
    needs_subjects = query.grouped or "count(DISTINCT subject)" in query.counts
    answer = await manager.stream_info(stream, subjects_filter=">" if needs_subjects else "")
    subjects: Mapping[str, int] = (answer.raw.get("state") or {}).get("subjects") or {}
    state = answer.value.state
    needs_ends = not {"min(seq)", "max(seq)"}.isdisjoint(query.counts)
    first, last = await _ends(manager, stream, state) if needs_ends else (None, None)
    return Facts(state.messages, first, last, subjects)


async def _ends(manager: Manager, stream: str, state: StreamState) -> tuple[int | None, int | None]:
    """Return the sequences of the first and the last message; the state may have those of deleted messages."""
    if not state.messages:
        return None, None
    if state.last_seq - state.first_seq + 1 == state.messages:
        return state.first_seq, state.last_seq
    first = await _next(manager, stream, 1)
    return (first, await _last(manager, stream, first, state.last_seq)) if first is not None else (None, None)


async def _next(manager: Manager, stream: str, seq: int) -> int | None:
    found = await next_message(manager, stream, seq)
    return found.seq if found is not None else None


async def _last(manager: Manager, stream: str, low: int, high: int) -> int:
    """Return the sequence of the last message; `low` has a message, and `high` is the highest possible one.

    nats-server does not find it by the subject `>` if the message at its last sequence was deleted.
    """
    if (found := await _next(manager, stream, high)) is not None:
        return found
    while low + 1 < high:
        middle = (low + high) // 2
        if (found := await _next(manager, stream, middle)) is None:
            high = middle
        else:
            low = found
    return low
