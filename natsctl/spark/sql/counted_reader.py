"""Reads queries whose answer the server knows.

What is understood here is a small part of SQL, and all of a query or nothing: whatever is not, Spark answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from natsctl.api.subjects import is_literal
from natsctl.spark.sql.counted import CountedQuery, Item, Order, What
from natsctl.spark.sql.relations import relations
from natsctl.spark.sql.text import Token, tokens

NEVER_NULL = ("stream", "seq", "subject", "timestamp", "value")
"""Columns of which every message has one: counting them counts messages."""


class _NotUnderstood(Exception):  # no error: Spark is asked instead
    pass


def counted(query: str) -> CountedQuery | None:
    """What a query asks of one stream where the server knows the answer, else None."""
    try:
        return _Reader(query).query()
    except _NotUnderstood:
        return None


@dataclass(slots=True)
class _Reader:
    """Reads a query word by word."""

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
            raise _NotUnderstood
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
            raise _NotUnderstood
        what = self._counted() if function == "COUNT" else self._end(function)
        if not self._sign(")"):
            raise _NotUnderstood
        return what

    def _counted(self) -> What:
        if self._take("DISTINCT"):
            if self._next().text != "subject":
                raise _NotUnderstood
            return "subjects"
        word = self._next()
        if word.text not in ("*", "1", *NEVER_NULL):
            raise _NotUnderstood
        return "count"

    def _end(self, function: str) -> What:
        if self._next().text != "seq":
            raise _NotUnderstood
        return "first" if function == "MIN" else "last"

    def _table(self) -> str:
        self._want("FROM")
        named = relations(self.text)
        if len(named) != 1 or self.at >= len(self.words) or named[0].start != self.words[self.at].start:
            raise _NotUnderstood
        while self.at < len(self.words) and self.words[self.at].end <= named[0].end:
            self.at += 1
        return named[0].name

    def _where(self) -> tuple[str, ...]:
        if self._next().text != "subject":
            raise _NotUnderstood
        if self._sign("=", "=="):
            return (self._subject(),)
        self._want("IN")
        if not self._sign("("):
            raise _NotUnderstood
        found = [self._subject()]
        while self._sign(","):
            found.append(self._subject())
        if not self._sign(")"):
            raise _NotUnderstood
        return tuple(dict.fromkeys(found))

    def _subject(self) -> str:
        subject = self._next().literal
        if subject is None or not is_literal(subject):
            raise _NotUnderstood
        return subject

    def _group(self, items: Sequence[Item]) -> bool:
        self._want("BY")
        word = self._next()
        if word.is_word("ALL"):
            return any(item.what == "subject" for item in items)
        if word.text != "subject" and items[self._position(word, items)].what != "subject":
            raise _NotUnderstood
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
            raise _NotUnderstood
        return int(word.text) - 1

    def _number(self) -> int:
        word = self._next()
        if word.kind != "number" or not word.text.isdecimal():
            raise _NotUnderstood
        return int(word.text)

    def _alias(self) -> str:
        name = self._next().name
        if not name:
            raise _NotUnderstood
        return name

    def _peek(self) -> Token | None:
        return self.words[self.at] if self.at < len(self.words) else None

    def _next(self) -> Token:
        word = self._peek()
        if word is None:
            raise _NotUnderstood
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
            raise _NotUnderstood

    def _sign(self, *symbols: str) -> bool:
        word = self._peek()
        if word is None or not word.is_symbol(*symbols):
            return False
        self.at += 1
        return True

    @staticmethod
    def _same(what: What, items: Sequence[Item]) -> int:
        """Which column is that same thing."""
        for at, item in enumerate(items):
            if item.what == what:
                return at
        raise _NotUnderstood


def _title(words: Sequence[Token]) -> str:
    """The name that Spark gives to a column without an alias."""
    texts = [word.text for word in words]
    if len(texts) == 1:
        return texts[0]
    inner = texts[2:-1]
    counts_rows = inner in (["*"], ["1"])
    distinct = "DISTINCT " if inner[0].upper() == "DISTINCT" else ""
    return f"{texts[0].lower()}({'1' if counts_rows else distinct + inner[-1]})"


def _check(found: CountedQuery, distinct: bool, grouped: bool) -> None:
    """Raises where the parts do not go together; Spark knows what they mean, or why they do not."""
    whats = {item.what for item in found.items}
    if distinct and (grouped or whats != {"subject"}):
        raise _NotUnderstood
    if not whats <= ({"subject", "count"} if found.grouped else {"count", "subjects", "first", "last"}):
        raise _NotUnderstood
    if found.only is not None and found.needs_ends:
        raise _NotUnderstood
