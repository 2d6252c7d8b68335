"""What a statement is told before any Spark is started: what it must not change, and a table that cannot be there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.api.exit_codes import ExitCode
from natsctl.spark.sql.catalogue import Catalogue
from natsctl.spark.sql.relations import name_at, relations
from natsctl.spark.sql.result import Result
from natsctl.spark.sql.text import Token, quote, split_statements, tokens

Suggest = Callable[[str, list[str]], str]
"""What an unknown name may have meant, given those there are."""

_CHANGES: Final = {
    "INSERT": "natsctl stream import {} FILE stores messages",
    "MERGE": "natsctl stream import {} FILE stores messages",
    "UPDATE": "messages cannot be changed",
    "DELETE": "natsctl stream purge {} removes messages",
    "TRUNCATE": "natsctl stream purge {} removes messages",
    "DROP": "natsctl stream rm {} removes it",
    "ALTER": "natsctl stream edit {} changes it",
}
"""What does what a statement that begins so would, by natsctl."""
_BEFORE_TARGETS: Final = ("INTO", "OVERWRITE", "FROM", "TABLE", "VIEW", "IF", "EXISTS")


class UnknownTable(NatsctlError):
    """A query names a table that is no stream, no bucket, and nothing of its own."""

    exit_code = ExitCode.NOT_FOUND


def unknown_table(name: str, catalogue: Catalogue, suggest: Suggest) -> UnknownTable:
    """The failure of a query that names such a table, or one in a place where tables are not looked for."""
    if name in catalogue.names:
        text = f"{name} stands where natsctl looks for no table, such as IDENTIFIER and EXECUTE IMMEDIATE"
        return UnknownTable(text, hint=f"write FROM {quote(name)}")
    hint = suggest(name, catalogue.names) or "natsctl str ls -a shows the streams"
    return UnknownTable(f"there is no stream, bucket or view {name}", hint=hint)


def check_changes_nothing(text: str, catalogue: Catalogue) -> None:
    """Raises UsageError for a statement that would change a stream or a bucket, or take its name."""
    for statement in split_statements(text):
        words = tokens(statement)
        _check_name_is_free(words, catalogue)
        instead = _CHANGES.get(words[0].text.upper()) if words[0].kind == "word" else None
        if instead is None:
            continue
        target = next((at for at, word in enumerate(words) if at and not word.is_word(*_BEFORE_TARGETS)), None)
        table = catalogue.find(name_at(words, target)) if target is not None else None
        if table is not None:
            raise UsageError(f"queries change no {table.kind}", hint=instead.format(table.stream))


def _check_name_is_free(words: Sequence[Token], catalogue: Catalogue) -> None:
    """Raises UsageError for a view with the name of a stream or bucket, which each statement would have instead."""
    kinds = [at for at, word in enumerate(words) if word.is_word("VIEW", "AS")]
    if not words[0].is_word("CREATE") or not kinds or words[kinds[0]].is_word("AS"):
        return
    at = next((at for at in range(kinds[0] + 1, len(words)) if not words[at].is_word("IF", "NOT", "EXISTS")), None)
    table = catalogue.find(name_at(words, at)) if at is not None else None
    if table is not None:
        raise UsageError(f"there is a {table.kind} {table.name} already", hint="give the view another name")


def check_named(text: str, catalogue: Catalogue, suggest: Suggest) -> None:
    """Raises UnknownTable where a query reads one table that is not there; of others Spark knows more."""
    words = tokens(text.rstrip().rstrip(";"))
    named = relations(text)
    if len(named) != 1 or not words[0].is_word("SELECT") or any(word.is_symbol(";") for word in words):
        return
    froms = [at for at, word in enumerate(words) if word.is_word("FROM")]
    if len(froms) != 1 or words[froms[0] - 1].is_word("DISTINCT") or _depth(words[: froms[0]]):
        return
    name = named[0].name
    begins = froms[0] + 1 < len(words) and words[froms[0] + 1].start == named[0].start
    if begins and "." not in name and name.upper() != "VALUES" and catalogue.find(name) is None:
        raise unknown_table(name, catalogue, suggest)


def _depth(words: Sequence[Token]) -> int:
    """How many parentheses are open."""
    return sum(word.is_symbol("(") - word.is_symbol(")") for word in words)


def listed(text: str, catalogue: Catalogue) -> Result | None:
    """The answer to SHOW TABLES, which Spark knows only of those that were read; None for anything else."""
    words = [word for word in tokens(text) if not word.is_symbol(";")]
    if len(words) != 2 or not (words[0].is_word("SHOW") and words[1].is_word("TABLES")):
        return None
    found = [catalogue.find(name) for name in sorted(catalogue.names)]
    return Result(["tableName", "kind"], [(table.name, table.kind) for table in found if table is not None])
