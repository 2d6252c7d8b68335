"""What statements leave behind in a session: views that read tables by their names, and tables that are cached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from natsctl.spark.sql.catalogue import Table
from natsctl.spark.sql.relations import relations
from natsctl.spark.sql.text import Token, tokens

_LEAVE_TEXTS = ("CREATE", "CACHE", "ALTER", "DECLARE")
_END_ALL = (("CLEAR", "CACHE"), ("REFRESH",))
"""How statements begin after which nothing has to be as it was when it was cached."""


class Left:
    """Which tables later statements must find whole, and which as they were."""

    def __init__(self) -> None:
        self._behind: dict[str, Table] = {}
        """Tables that views and functions made so far may read, with any column and more than once."""
        self._cached: dict[str, set[str]] = {}
        """What is cached, and the tables that it was read from: Spark finds it again by what they are."""
        self._functions = False

    def behind(self, tables: Sequence[Table], statement: str) -> list[Table]:
        """The tables that a statement may read through what was made before; it names `tables` itself."""
        words = tokens(statement)
        known = {table.name.lower() for table in tables}
        unseen = self._functions or any(word.is_word("IDENTIFIER") for word in words)
        if not unseen and not _leaves_text(words) and known and known >= _names(statement):
            return []
        return [*self._behind.values()]

    def kept(self) -> set[str]:
        """The names of tables that stay as they were, since what is cached was read from them."""
        return set().union(*self._cached.values())

    def note(self, tables: Iterable[Table], statement: str) -> None:
        """Take in what a statement that was done has left; it names `tables` itself."""
        words = tokens(statement)
        if any(_begins(words, *ending) for ending in _END_ALL):
            self._cached.clear()
        elif _begins(words, "UNCACHE"):
            self._cached.pop(words[-1].name.lower(), None)
        elif _leaves_text(words):
            self._functions = self._functions or any(word.is_word("FUNCTION") for word in words)
            self._behind |= {table.name.lower(): table for table in tables}
            if _begins(words, "CACHE"):
                self._note_cached({table.name.lower() for table in tables}, statement)

    def _note_cached(self, tables: set[str], statement: str) -> None:
        target, *inside = [named.name.lower() for named in relations(statement)]
        of_views = not {*(inside or [target])} <= tables
        self._cached[target] = tables | ({*self._behind} if of_views else set())


def _names(statement: str) -> set[str]:
    return {named.name.lower() for named in relations(statement)}


def _begins(words: Sequence[Token], *beginning: str) -> bool:
    return len(words) >= len(beginning) and all(
        word.is_word(said) for word, said in zip(words, beginning, strict=False)
    )


def _leaves_text(words: Sequence[Token]) -> bool:
    """Whether a statement may leave behind a text that Spark reads anew wherever it is named."""
    return bool(words) and words[0].is_word(*_LEAVE_TEXTS)
