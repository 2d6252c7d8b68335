"""Queries whose answer the server knows: numbers of messages, by subject, first and last sequences.

Only a small part of SQL is understood, and all of a query or nothing: Spark answers the others. The rows and the names
of their columns are those that Spark would give. The server is asked in a request or a few.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from natsctl.api.subjects import is_literal
from natsctl.client.stream_state import next_message
from natsctl.spark.sql_tables import Catalogue, Token, relations, tokens

if TYPE_CHECKING:
    from natsctl.api.stream import StreamState
    from natsctl.client.manager import Manager


What = Literal["subject", "count", "subjects", "first", "last"]


class Facts(NamedTuple):
    """A server's figures of a stream; `subjects` counts messages by subject, and may be empty where not needed.

    `first` and `last` are the sequences of messages that are there, None in an empty stream.
    """

    messages: int
    first: int | None = None
    last: int | None = None
    subjects: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Item:
    """A column of the answer: what it is and its name."""

    what: What
    title: str
    alias: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """The column of the answer by which rows are ordered."""

    column: int
    descending: bool = False


@dataclass(frozen=True, slots=True)
class CountedQuery:
    """A query that needs no message: its stream, and the figures that it asks."""

    table: str
    items: tuple[Item, ...]
    grouped: bool = False
    only: tuple[str, ...] | None = None
    """The subjects that count; None for all."""
    order: tuple[Order, ...] = ()
    limit: int | None = None

    @property
    def columns(self) -> list[str]:
        """The names of the answer's columns."""
        return [item.alias or item.title for item in self.items]

    @property
    def numbers(self) -> frozenset[str]:
        """The columns that are numbers."""
        return frozenset(item.alias or item.title for item in self.items if item.what != "subject")

    @property
    def needs_subjects(self) -> bool:
        """Return whether messages must be counted by subject."""
        return self.grouped or self.only is not None or any(item.what == "subjects" for item in self.items)

    @property
    def needs_ends(self) -> bool:
        """Return whether the first and the last sequence must be known."""
        return any(item.what in ("first", "last") for item in self.items)

    def answer(self, facts: Facts) -> list[tuple[Any, ...]]:
        """Return the rows."""
        if self.only is not None:
            kept = {subject: facts.subjects[subject] for subject in self.only if subject in facts.subjects}
            facts = Facts(sum(kept.values()), subjects=kept)
        rows = self._grouped(facts) if self.grouped else [tuple(_whole(item.what, facts) for item in self.items)]
        for order in reversed(self.order):
            rows.sort(key=lambda row: _sortable(row[order.column]), reverse=order.descending)
        return rows if self.limit is None else rows[: self.limit]

    def _grouped(self, facts: Facts) -> list[tuple[Any, ...]]:
        return [
            tuple(subject if item.what == "subject" else number for item in self.items)
            for subject, number in sorted(facts.subjects.items())
        ]


def _whole(what: What, facts: Facts) -> int | None:
    if what in ("first", "last"):
        return facts.first if what == "first" else facts.last
    return len(facts.subjects) if what == "subjects" else facts.messages


def _sortable(value: Any) -> Any:
    """Return a key for Spark's order of texts, which is that of their bytes."""
    return value.encode() if isinstance(value, str) else value


NEVER_NULL = ("stream", "seq", "subject", "timestamp", "value")
"""Columns of which every message has one: counting them counts messages."""


class _UnsupportedQueryError(Exception):  # no error: Spark is asked instead
    pass


def counted(query: str) -> CountedQuery | None:
    """Return the figures that a query asks of one stream where the server knows them, else None."""
    try:
        return _Reader(query).query()
    except _UnsupportedQueryError:
        return None


@dataclass(slots=True)
class _Reader:
    """A reader of a query, word by word."""

    text: str
    at: int = 0
    words: list[Token] = field(default_factory=list)

    def query(self) -> CountedQuery:
        self.words = tokens(self.text)
        self._want("SELECT")
        distinct = self._take("DISTINCT")
        items = [self._item()]
        while self._sign(","):
            items.append(self._item())
        table = self._table()
        only = self._where() if self._take("WHERE") else None
        grouped = self._group(items) if self._take("GROUP") else False
        order = self._orders(items) if self._take("ORDER") else ()
        limit = self._number() if self._take("LIMIT") else None
        self._sign(";")
        if self.at != len(self.words):
            raise _UnsupportedQueryError
        found = CountedQuery(table, tuple(items), grouped or distinct, only, order, limit)
        _check(found, distinct, grouped)
        return found

    def _item(self) -> Item:
        begin = self.at
        what = self._what()
        title = _title(self.words[begin : self.at])
        if self._take("AS"):
            return Item(what, title, self._alias())
        following = self._peek()
        has_alias = following is not None and following.name != "" and not following.is_word("FROM")
        return Item(what, title, self._alias() if has_alias else "")

    def _what(self) -> What:
        word = self._next()
        if word.text == "subject":
            return "subject"
        function = word.text.upper() if word.kind == "word" else ""
        if function not in ("COUNT", "MIN", "MAX") or not self._sign("("):
            raise _UnsupportedQueryError
        what = self._counted() if function == "COUNT" else self._end(function)
        if not self._sign(")"):
            raise _UnsupportedQueryError
        return what

    def _counted(self) -> What:
        if self._take("DISTINCT"):
            if self._next().text != "subject":
                raise _UnsupportedQueryError
            return "subjects"
        word = self._next()
        if word.text not in ("*", "1", *NEVER_NULL):
            raise _UnsupportedQueryError
        return "count"

    def _end(self, function: str) -> What:
        if self._next().text != "seq":
            raise _UnsupportedQueryError
        return "first" if function == "MIN" else "last"

    def _table(self) -> str:
        self._want("FROM")
        named = relations(self.text)
        if len(named) != 1 or self.at >= len(self.words) or named[0].start != self.words[self.at].start:
            raise _UnsupportedQueryError
        while self.at < len(self.words) and self.words[self.at].end <= named[0].end:
            self.at += 1
        return named[0].name

    def _where(self) -> tuple[str, ...]:
        if self._next().text != "subject":
            raise _UnsupportedQueryError
        if self._sign("=", "=="):
            return (self._subject(),)
        self._want("IN")
        if not self._sign("("):
            raise _UnsupportedQueryError
        found = [self._subject()]
        while self._sign(","):
            found.append(self._subject())
        if not self._sign(")"):
            raise _UnsupportedQueryError
        return tuple(dict.fromkeys(found))

    def _subject(self) -> str:
        subject = self._next().literal
        if subject is None or not is_literal(subject):
            raise _UnsupportedQueryError
        return subject

    def _group(self, items: Sequence[Item]) -> bool:
        self._want("BY")
        word = self._next()
        if word.is_word("ALL"):
            return any(item.what == "subject" for item in items)
        if word.text != "subject" and items[self._position(word, items)].what != "subject":
            raise _UnsupportedQueryError
        return True

    def _orders(self, items: Sequence[Item]) -> tuple[Order, ...]:
        self._want("BY")
        found = [self._order(items)]
        while self._sign(","):
            found.append(self._order(items))
        return tuple(found)

    def _order(self, items: Sequence[Item]) -> Order:
        begin = self.at
        word = self._next()
        aliases = [item.alias.lower() for item in items]
        if word.kind == "number":
            column = self._position(word, items)
        elif word.name and word.name.lower() in aliases:
            column = aliases.index(word.name.lower())
        else:
            self.at = begin
            column = self._same(self._what(), items)
        descending = self._take("DESC")
        if not descending:
            self._take("ASC")
        return Order(column, descending)

    def _position(self, word: Token, items: Sequence[Item]) -> int:
        if word.kind != "number" or not word.text.isdecimal() or not 1 <= int(word.text) <= len(items):
            raise _UnsupportedQueryError
        return int(word.text) - 1

    def _number(self) -> int:
        word = self._next()
        if word.kind != "number" or not word.text.isdecimal():
            raise _UnsupportedQueryError
        return int(word.text)

    def _alias(self) -> str:
        name = self._next().name
        if not name:
            raise _UnsupportedQueryError
        return name

    def _peek(self) -> Token | None:
        return self.words[self.at] if self.at < len(self.words) else None

    def _next(self) -> Token:
        word = self._peek()
        if word is None:
            raise _UnsupportedQueryError
        self.at += 1
        return word

    def _take(self, keyword: str) -> bool:
        word = self._peek()
        if word is None or not word.is_word(keyword):
            return False
        self.at += 1
        return True

    def _want(self, keyword: str) -> None:
        if not self._take(keyword):
            raise _UnsupportedQueryError

    def _sign(self, *symbols: str) -> bool:
        word = self._peek()
        if word is None or not word.is_symbol(*symbols):
            return False
        self.at += 1
        return True

    @staticmethod
    def _same(what: What, items: Sequence[Item]) -> int:
        """Return the equivalent column."""
        for at, item in enumerate(items):
            if item.what == what:
                return at
        raise _UnsupportedQueryError


def _title(words: Sequence[Token]) -> str:
    """Return the name that Spark gives to a column without an alias."""
    texts = [word.text for word in words]
    if len(texts) == 1:
        return texts[0]
    inner = texts[2:-1]
    counts_rows = inner in (["*"], ["1"])
    distinct = "DISTINCT " if inner[0].upper() == "DISTINCT" else ""
    return f"{texts[0].lower()}({'1' if counts_rows else distinct + inner[-1]})"


def _check(found: CountedQuery, distinct: bool, grouped: bool) -> None:
    """Raise where the parts do not go together; the query is left to Spark then."""
    whats = {item.what for item in found.items}
    if distinct and (grouped or whats != {"subject"}):
        raise _UnsupportedQueryError
    if not whats <= ({"subject", "count"} if found.grouped else {"count", "subjects", "first", "last"}):
        raise _UnsupportedQueryError
    if found.only is not None and found.needs_ends:
        raise _UnsupportedQueryError


ALL = ">"


def counted_query(query: str, catalogue: Catalogue) -> tuple[CountedQuery, str] | None:
    """Return the figures that a query asks, and their stream; None for a query that Spark must answer."""
    found = counted(query)
    table = catalogue.find(found.table) if found is not None else None
    return (found, table.stream) if found is not None and table is not None and table.kind == "stream" else None


async def facts_for(manager: Manager, stream: str, query: CountedQuery) -> Facts:
    """Return the server's figures of the stream, as far as the query needs them."""
    if query.only is not None:
        pages = await asyncio.gather(*(subject_counts(manager, stream, subject) for subject in query.only))
        found = {subject: number for page in pages for subject, number in page.items()}
        return Facts(sum(found.values()), subjects=found)
    answer = await manager.stream_info(stream, subjects_filter=ALL if query.needs_subjects else "")
    subjects: Mapping[str, int] = (answer.raw.get("state") or {}).get("subjects") or {}
    state = answer.value.state
    first, last = await _ends(manager, stream, state) if query.needs_ends else (None, None)
    return Facts(state.messages, first, last, subjects)


async def subject_counts(manager: Manager, stream: str, pattern: str = ALL) -> dict[str, int]:
    """Return the number of messages by subject."""
    answer = await manager.stream_info(stream, subjects_filter=pattern)
    return dict((answer.raw.get("state") or {}).get("subjects") or {})


async def _ends(manager: Manager, stream: str, state: StreamState) -> tuple[int | None, int | None]:
    """Return the sequences of the first and the last message; those of the state may be of deleted messages."""
    if not state.messages:
        return None, None
    if state.last_seq - state.first_seq + 1 == state.messages:
        return state.first_seq, state.last_seq
    first = await _next(manager, stream, 1)
    return (first, await _last(manager, stream, first, state.last_seq)) if first is not None else (None, None)


async def _next(manager: Manager, stream: str, seq: int) -> int | None:
    """Return the sequence of the first message from `seq` on."""
    found = await next_message(manager, stream, seq)
    return found.seq if found is not None else None


async def _last(manager: Manager, stream: str, low: int, high: int) -> int:
    """Return the sequence of the last message; `low` is that of a message, and none is behind `high`.

    The reference does not find it by a subject of `>` where the message at its last sequence is gone.
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
