"""The second word of a command line: each noun has a table of verbs, and only the verb that runs is loaded."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

_ROOM = "natsctl.cli."


class Verb(NamedTuple):
    """One row of a noun's `VERBS`: the words that it answers to, and where its function is.

    `where` is `stream.create:add` for a function; `stream.cluster` for a package or module with `VERBS` of its own, or
    `server.overview:CONFIG_VERBS` for one of several tables of a module, which `help` then describes. `answer` names
    the type of what `-j` prints: a type of natsctl.api by its name, or `module:Type` for one of ours (below
    natsctl.cli, or beginning with its room); with `[]` behind it an array of them, with `*` behind that one document
    per line; several with `|` between them.
    `examples` are whole command lines for its help page.
    """

    names: str
    where: str
    help: str = ""
    answer: str = ""
    examples: tuple[str, ...] = ()
    hidden: bool = False

    @property
    def name(self) -> str:
        """The word that help shows first."""
        return self.words[0]

    @property
    def words(self) -> tuple[str, ...]:
        """The name and its aliases."""
        return tuple(word.strip() for word in self.names.split(","))

    @property
    def is_group(self) -> bool:
        """Whether it has verbs of its own."""
        return is_table(self.where)


def is_table(where: str) -> bool:
    """Whether a table of verbs stands there, not a function."""
    return ":" not in where or where.endswith("VERBS")


def load(where: str) -> Any:
    """The function, or the verbs, that stand there."""
    module, colon, name = where.partition(":")
    return getattr(importlib.import_module(_ROOM + module), name if colon else "VERBS")


def named(verbs: Sequence[Verb], word: str) -> Verb | None:
    """The verb that answers to a word."""
    return next((verb for verb in verbs if word in verb.words), None)


def verbs_first(verbs: Sequence[Verb], words: Sequence[str]) -> list[str]:
    """The words with the flags that stand before a verb behind it, so that a group takes those of its verbs.

    A word behind a flag that is no verb is taken for the flag's value; any other that is no verb ends the search.
    """
    path: list[str] = []
    early: list[str] = []
    rest = list(words)
    while (at := _verb_at(verbs, rest)) is not None:
        early += rest[:at]
        path.append(rest[at])
        found, rest = named(verbs, rest[at]), rest[at + 1 :]
        if found is None or not found.is_group:
            break
        verbs = load(found.where)
    return [*path, *early, *rest]


def _verb_at(verbs: Sequence[Verb], words: Sequence[str]) -> int | None:
    after_flag = False
    for at, word in enumerate(words):
        if word == "--":
            return None
        if named(verbs, word):
            return at
        is_flag = word.startswith("-") and word != "-"
        if not is_flag and not after_flag:
            return None
        after_flag = is_flag and "=" not in word
    return None


def walk(verbs: Sequence[Verb]) -> Iterator[tuple[str, Verb]]:
    """Every verb below a noun, groups included, with the words that lead there."""
    for verb in verbs:
        yield verb.name, verb
        if verb.is_group:
            yield from ((f"{verb.name} {path}", below) for path, below in walk(load(verb.where)))


def begun(verbs: Sequence[Verb], words: Sequence[str]) -> Iterator[Verb]:
    """The verb that `words` begin with, and those below it that they go on with."""
    for word in words:
        found = named(verbs, word)
        if found is None:
            return
        yield found
        if not found.is_group:
            return
        verbs = load(found.where)


def build(help: str, verbs: Sequence[Verb], words: Sequence[str]) -> Any:
    """A Typer app of the verb that `words` begin with, or of all of them where that is none of them."""
    import typer

    from natsctl.cli.group import AliasGroup

    app = typer.Typer(cls=AliasGroup, help=help, no_args_is_help=True, add_completion=False)
    one = named(verbs, words[0]) if words else None
    for verb in [one] if one else verbs:
        if verb.is_group:
            app.add_typer(build(f"{verb.help}.", load(verb.where), words[1:] if one else ()), name=verb.names)
        else:
            app.command(verb.names, hidden=verb.hidden)(load(verb.where))
    return app


def build_single(where: str) -> Any:
    """A Typer app that is one command."""
    import typer

    app = typer.Typer(add_completion=False)
    app.command()(load(where))
    return app
