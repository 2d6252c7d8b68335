"""The tables of a query: streams, their subjects and buckets, found by name and read as temporary views of Spark.

A query is split into tokens to find the tables that it names and the columns that it can need.

Without the payload the server sends headers only. More columns may be found than are needed, never fewer: a column that
is used is named, unless a star or one of a few clauses means all of them.

Views and cached tables that a statement creates are remembered: later statements read through them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from natsctl.api.errors import UsageError
from natsctl.spark.stream_frames import FORMAT, STREAM_COLUMNS, parse_json_value, read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Kind = Literal["word", "quoted", "string", "number", "symbol"]

_TOKEN = re.compile(
    r"""
      (?P<gap>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
    | (?P<string>'(?:\\.|''|[^'\\])*'|"(?:\\.|""|[^"\\])*")
    | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<word>[^\W\d]\w*)
    | (?P<symbol>\|>|<=>|[<>!=]=|<>|\|\||::|->|.)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A word, literal or sign and its position; `text` is as written."""

    kind: Kind
    text: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        """Return whether it is one of those keywords, given in capitals."""
        return self.kind == "word" and self.text.upper() in words

    def is_symbol(self, *symbols: str) -> bool:
        """Return whether it is one of those signs."""
        return self.kind == "symbol" and self.text in symbols

    @property
    def name(self) -> str:
        """The identifier of a word or a text in backticks; "" for anything else."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return self.text if self.kind == "word" else ""

    @property
    def literal(self) -> str | None:
        """The value of a string without escapes; None for one that has some, or that is no string."""
        inner = self.text[1:-1]
        if self.kind != "string" or "\\" in inner or self.text[0] in inner:
            return None
        return inner


def tokens(query: str) -> list[Token]:
    """Return the tokens of a query without comments; invalid SQL becomes signs that Spark refuses."""
    found: list[Token] = []
    for match in _TOKEN.finditer(query):
        group = str(match.lastgroup)
        if group != "gap":
            kind: Kind = "string" if group == "raw" else group  # type: ignore[assignment]  # the groups are the kinds
            found.append(Token(kind, match.group(), match.start(), match.end()))
    return found


def quote(name: str) -> str:
    """Return the identifier as Spark reads it, whatever it is made of."""
    return "`" + name.replace("`", "``") + "`"


def literal(value: str) -> str:
    """Return a text as Spark reads it in a query."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def split_statements(text: str) -> list[str]:
    """Return the statements of a text, each without its semicolon; empty ones are left out."""
    found, begin = [], 0
    for token in tokens(text):
        if token.is_symbol(";"):
            found.append(text[begin : token.start])
            begin = token.end
    return [one.strip() for one in [*found, text[begin:]] if tokens(one)]


_BEFORE_TABLES = ("FROM", "JOIN", "TABLE")
_AFTER_TABLES = (
    "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "UNION", "INTERSECT", "EXCEPT", "MINUS", "SELECT", "WINDOW",
    "CLUSTER", "SORT", "DISTRIBUTE", "OFFSET",
)  # fmt: skip
_BEFORE_QUERIES = ("FROM", "JOIN", "AS", "UNION", "INTERSECT", "EXCEPT", "MINUS", "ALL", "DISTINCT")
_OF_DESCRIBE = ("TABLE", "EXTENDED", "FORMATTED")
_DESCRIBED = ("FUNCTION", "QUERY", "DATABASE", "SCHEMA", "NAMESPACE", "CATALOG", "SELECT", "WITH", "VALUES")
"""The keywords after DESCRIBE that are not followed directly by a table name."""
_ENDS_NAME = (",", "(", ")", ";")


@dataclass(frozen=True, slots=True)
class Named:
    """A table by its name in a query, and the position of the name."""

    name: str
    start: int
    end: int


def relations(query: str) -> list[Named]:
    """Return the names in places of tables: tables, and names that the query itself gives to a part of it.

    A name without backticks may hold signs that Spark would refuse, such as `-` or `$`: nothing else can be meant where
    a table is expected.
    """
    return list(_relations(tokens(query)))


def reads_once(query: str) -> bool:
    """Return whether Spark has no cause to look at a table of the query twice.

    It has if a name occurs twice, or if a subquery may depend on the rows around it: Spark then copies it.
    """
    names = [named.name.lower() for named in relations(query)]
    return len({*names}) == len(names) and not _has_dependent_query(tokens(query))


def _has_dependent_query(words: Sequence[Token]) -> bool:
    """Return whether a query is in parentheses in a place for neither a table nor a member of a union."""
    return any(
        opening.is_symbol("(") and inner.is_word("SELECT", "WITH", "FROM") and not before.is_word(*_BEFORE_QUERIES)
        for before, opening, inner in zip(words, words[1:], words[2:], strict=False)
    )


def _relations(words: Sequence[Token]) -> Iterator[Named]:
    clauses = [False]
    """For each open parenthesis, whether tables are listed in it."""
    at = _beginning(words)
    expected = at > 0
    while at < len(words):
        token = words[at]
        if token.is_symbol("("):
            clauses.append(expected)
        elif token.is_symbol(")"):
            clauses = clauses[:-1] or [False]
            expected = False
        elif token.is_word(*_BEFORE_TABLES):
            clauses[-1] = expected = True
        elif token.is_symbol(","):
            expected = clauses[-1]
        elif token.is_word(*_AFTER_TABLES) and not (expected and (at > 0 and not words[at - 1].is_symbol("("))):
            clauses[-1] = expected = False
        elif expected:
            run = _run(words, at)
            expected = token.is_word("LATERAL", "ONLY")
            after = words[at + len(run)] if at + len(run) < len(words) else token
            if (name := _name(run)) and not expected and not after.is_symbol("("):
                yield Named(name, run[0].start, run[-1].end)
            at += len(run) - 1
        at += 1


def _beginning(words: Sequence[Token]) -> int:
    """Return the number of tokens before the table of DESCRIBE or SHOW COLUMNS; 0 for other statements."""
    if len(words) > 3 and words[0].is_word("SHOW") and words[1].is_word("COLUMNS") and words[2].is_word("IN"):
        return 3
    if not words or not words[0].is_word("DESCRIBE", "DESC"):
        return 0
    at = next((index for index, word in enumerate(words) if index and not word.is_word(*_OF_DESCRIBE)), 0)
    return 0 if words[at].is_word(*_DESCRIBED) else at


def _run(words: Sequence[Token], at: int) -> Sequence[Token]:
    """Return the adjacent tokens from `at` on: the parts of a name without backticks."""
    end = at + 1
    while end < len(words) and words[end].start == words[end - 1].end and not words[end].is_symbol(*_ENDS_NAME):
        end += 1
    return words[at:end]


def name_at(words: Sequence[Token], at: int) -> str:
    """Return the name of the table at a position, or ""."""
    return _name(_run(words, at))


def _name(run: Sequence[Token]) -> str:
    if len(run) == 1:
        return run[0].name or (run[0].text if run[0].kind == "number" else "")
    if any(one.kind in ("quoted", "string") for one in run):
        return ""
    return "".join(one.text for one in run)


def quoted(query: str, is_table: Callable[[str], bool]) -> str:
    """Return the query with the names of tables in backticks."""
    parts, end = [], 0
    for named in relations(query):
        if is_table(named.name):
            parts += [query[end : named.start], quote(named.name)]
            end = named.end
    return "".join([*parts, query[end:]])


TableKind = Literal["stream", "subjects", "bucket"]

SUBJECTS = "$subjects"
BUCKET_STREAM = "KV_"
BUCKET_COLUMNS = {
    "bucket": ("stream",),
    "key": ("subject",),
    "revision": ("seq",),
    "operation": ("headers",),
    "timestamp": ("timestamp",),
    "value": ("value",),
}
"""The columns of a bucket, each with what of the stream it is made of."""


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A table by the name that a query gives it."""

    name: str
    kind: TableKind
    stream: str


class Catalogue:
    """Tables by name, found as written or else without regard to case."""

    def __init__(self, streams: Iterable[str]) -> None:
        self.streams = sorted(streams)
        self._exact: dict[str, tuple[TableKind, str]] = {}
        for stream in self.streams:
            if stream.startswith(BUCKET_STREAM):
                self._exact[stream.removeprefix(BUCKET_STREAM)] = ("bucket", stream)
        for stream in self.streams:
            self._exact[stream] = ("stream", stream)
            self._exact[stream + SUBJECTS] = ("subjects", stream)
        self._folded: dict[str, list[str]] = {}
        for name in self._exact:
            self._folded.setdefault(name.lower(), []).append(name)

    def find(self, name: str) -> SqlTable | None:
        """Return the table of that name; raises UsageError where several differ only in the case of letters."""
        if name in self._exact:
            return SqlTable(name, *self._exact[name])
        near = self._folded.get(name.lower(), [])
        if len(near) > 1:
            raise UsageError(f"{name} may be {' or '.join(sorted(near))}", hint="write it with the same letters")
        return SqlTable(name, *self._exact[near[0]]) if near else None

    def find_all(self, names: Iterable[str]) -> list[SqlTable]:
        """Return the tables among the names, each once; others are names that a query has of its own, or mistakes.

        Raises UsageError for two that differ only in case: Spark treats them as one.
        """
        found: dict[str, SqlTable] = {}
        for name in names:
            table = self.find(name)
            if table is None:
                continue
            other = found.setdefault(name.lower(), table)
            if other.stream != table.stream:
                raise UsageError(
                    f"{other.stream} and {table.stream} cannot be in one query: Spark ignores the case of names"
                )
        return list(found.values())

    @property
    def names(self) -> list[str]:
        """Every name there is, for suggestions."""
        return list(self._exact)


_BEFORE_STAR = ("SELECT", "DISTINCT", "ALL")
_ALL_COLUMNS = ("NATURAL", "PIVOT", "UNPIVOT", "TABLE", "TRANSFORM", "MAP", "REDUCE", "DESCRIBE", "DESC")
_BEGINNINGS = ("SELECT", "WITH")
_QUERIES = (*_BEGINNINGS, "FROM", "TABLE", "VALUES", "DESCRIBE", "DESC", "EXPLAIN", "SHOW")
EVERYTHING = "select *"
"""A query that needs all columns."""


def is_query(statement: str) -> bool:
    """Return whether a statement only reads; others may create views that read the tables they name."""
    words = [token for token in tokens(statement) if not token.is_symbol("(")]
    return bool(words) and words[0].is_word(*_QUERIES)


def needed(query: str, columns: Iterable[str]) -> list[str]:
    """Return the `columns` that the query may need, in order."""
    words = tokens(query)
    known = list(columns)
    if not words or not words[0].is_word(*_BEGINNINGS) or _takes_all(words):
        return known
    used = {token.name.lower() for token in words} | {
        part.lower() for token in words for part in (token.name.split(".") if token.kind == "quoted" else [])
    }
    return [name for name in known if name.lower() in used]


def _takes_all(words: Sequence[Token]) -> bool:
    for index, token in enumerate(words):
        if token.is_symbol("|>"):
            return True
        if token.is_word(*_ALL_COLUMNS) and not (token.is_word("DESC") and index):
            return True
        if token.is_symbol("*") and _is_star(words, index):
            return True
    return False


def _is_star(words: Sequence[Token], at: int) -> bool:
    """Return whether a `*` means columns; it may also multiply, or count rows."""
    before = words[at - 1] if at else words[at]
    if before.is_symbol("("):
        return not (at > 1 and words[at - 2].is_word("COUNT") and at + 1 < len(words) and words[at + 1].is_symbol(")"))
    return before.is_symbol(",", ".", "*") or before.is_word(*_BEFORE_STAR)


_LEAVE_TEXTS = ("CREATE", "CACHE", "ALTER", "DECLARE")
_END_ALL = (("CLEAR", "CACHE"), ("REFRESH",))
"""The beginnings of statements that end all caching."""


class Left:
    """Tables that later statements must find complete, and tables that must stay unchanged."""

    def __init__(self) -> None:
        self._behind: dict[str, SqlTable] = {}
        """Tables that views and functions made so far may read, with any column and more than once."""
        self._cached: dict[str, set[str]] = {}
        """Cached tables and views, and the tables that they were read from: Spark finds them again by these."""
        self._functions = False

    def behind(self, tables: Sequence[SqlTable], statement: str) -> list[SqlTable]:
        """Return the tables that a statement may read through earlier views; it names `tables` itself."""
        words = tokens(statement)
        known = {table.name.lower() for table in tables}
        unseen = self._functions or any(word.is_word("IDENTIFIER") for word in words)
        if not unseen and not _leaves_text(words) and known and known >= _names(statement):
            return []
        return [*self._behind.values()]

    def kept(self) -> set[str]:
        """Return the names of tables that stay unchanged because cached data was read from them."""
        return set().union(*self._cached.values())

    def note(self, tables: Iterable[SqlTable], statement: str) -> None:
        """Record the effects of a statement that was run; it names `tables` itself."""
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
    """Return whether a statement may create a text that Spark reads again wherever it is named."""
    return bool(words) and words[0].is_word(*_LEAVE_TEXTS)


_COUNTED = "subject string, messages bigint"

Locate = Callable[[str], Mapping[str, str]]
"""The options of the data source for a stream."""


class Views:
    """Views in a session, recreated for each statement: Spark plans the read of a view once for all its uses.

    Cached data stays cached only while its views are the same, so those are not recreated.
    """

    def __init__(self, spark: SparkSession, locate: Locate, *, on_server: bool, schemas: Mapping[str, str]) -> None:
        self._spark, self._locate, self._on_server = spark, locate, on_server
        self._schemas = schemas
        """The types of JSON payloads, by the table's name in lower case."""
        self._left = Left()
        self._made: set[str] = set()

    def make(self, tables: list[SqlTable], statement: str) -> None:
        """Make a view of each table that the statement names, or that views of its own name."""
        behind = {table.name.lower(): table for table in self._left.behind(tables, statement)}
        kept = self._left.kept() & self._made
        pushdown = is_query(statement) and reads_once(statement)
        for name, table in ({table.name.lower(): table for table in tables} | behind).items():
            if name not in kept:
                query, pushed = (EVERYTHING, False) if name in behind else (statement, pushdown)
                self._frame(table, query, pushed).createOrReplaceTempView(quote(table.name))
                self._made.add(name)

    def note(self, tables: list[SqlTable], statement: str) -> None:
        """Record that a statement which names those tables was run."""
        self._left.note(tables, statement)

    def _frame(self, table: SqlTable, query: str, pushdown: bool) -> DataFrame:
        if table.kind == "subjects":
            return self._subjects_of(table)
        columns = needed(query, BUCKET_COLUMNS if table.kind == "bucket" else STREAM_COLUMNS)
        if table.kind == "bucket":
            frame = self._bucket(table, columns, pushdown)
        else:
            frame = read_stream(self._spark, self._locate(table.stream), columns, pushdown=pushdown)
        schema = self._schemas.get(table.name.lower())
        return parse_json_value(frame, schema, {}) if schema and "value" in columns else frame

    def _bucket(self, table: SqlTable, columns: list[str], pushdown: bool) -> DataFrame:
        """Return a row for every revision of a key that the bucket keeps."""
        sources = {source for name in columns for source in BUCKET_COLUMNS[name]}
        wanted = [one for one in STREAM_COLUMNS if one in sources]
        frame = read_stream(self._spark, self._locate(table.stream), wanted, pushdown=pushdown)
        return frame.selectExpr(*(f"{_MADE[name]} as {name}" for name in columns or ["revision"]))

    def _subjects_of(self, table: SqlTable) -> DataFrame:
        """Return a row for every subject; a server is asked only for the counts."""
        if self._on_server:
            options = self._locate(table.stream + SUBJECTS)
            return self._spark.read.format(FORMAT).schema(_COUNTED).options(**options).load()
        frame = read_stream(self._spark, self._locate(table.stream), ["subject"])
        return frame.groupBy("subject").count().withColumnRenamed("count", "messages")


def _header(key: str) -> str:
    return f"cast(try_element_at(filter(headers, pair -> pair.key = '{key}'), -1).value as string)"


_OPERATION = f"""
case when coalesce({_header("KV-Operation")}, '') != ''
     then case when {_header("KV-Operation")} in ('DEL', 'PURGE') then {_header("KV-Operation")} else 'PUT' end
     else case {_header("Nats-Marker-Reason")}
          when 'MaxAge' then 'PURGE' when 'Purge' then 'PURGE' when 'Remove' then 'DEL' else 'PUT' end
end"""
_MADE = {
    "bucket": f"substr(stream, {len(BUCKET_STREAM) + 1})",
    "key": "regexp_replace(subject, r'^\\$KV\\.[^.]*\\.', '')",
    "revision": "seq",
    "operation": _OPERATION,
    "timestamp": "timestamp",
    "value": "value",
}
