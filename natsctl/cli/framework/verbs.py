"""Tables of commands: each noun has a table of verbs, and only the module of the verb that runs is imported.

A table names functions, and other tables, as attributes of their modules, so that editors and type checkers can follow.
At run time such a module is a `LazyModule`, because to import every command would take longer than to run one:

    if TYPE_CHECKING:
        from natsctl.cli.stream import create, edit
    else:
        create, edit = lazy_modules("natsctl.cli.stream", "create edit")

    VERBS = (Verb("add, create, new", create.add), Verb("edit, update", edit.edit))
"""

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple


class LazyReference:
    """A name in a module that is imported when the reference is resolved."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def resolve(self) -> Any:
        """Import the module and return the named object."""
        return getattr(importlib.import_module(self.module), self.name)


class LazyModule:
    """Stand-in for a module of commands in a table: each of its attributes is a `LazyReference`."""

    __slots__ = ("_module",)

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> LazyReference:
        """Return the reference to a name of the module."""
        return LazyReference(self._module, name)


def lazy_modules(package: str, names: str) -> Iterator[LazyModule]:
    """Yield a stand-in for each of the named modules of a package; the names are separated by blanks."""
    return (LazyModule(f"{package}.{name}") for name in names.split())


class Verb(NamedTuple):
    """One row of a noun's `VERBS`: its name and aliases, and its function or the table of its verbs.

    `answer` names the type of what `-j` prints: a type of natsctl.api by its name, or `module:Type` for one of ours
    (below natsctl.cli, or beginning with its room); with `[]` behind it an array of them, with `*` behind that one
    document per line; several with `|` between them.
    `examples` are whole command lines for its help page. `default` is the command that runs where none of the verbs
    below is named.
    """

    names: str
    command: Callable[..., Any] | Sequence["Verb"]
    help: str = ""
    answer: str = ""
    examples: tuple[str, ...] = ()
    default: Callable[..., Any] | None = None

    @property
    def name(self) -> str:
        """Return the word that help shows first."""
        return self.words[0]

    @property
    def words(self) -> tuple[str, ...]:
        """Return the name and its aliases."""
        return tuple(word.strip() for word in self.names.split(","))

    @property
    def is_group(self) -> bool:
        """Return whether it has verbs."""
        if isinstance(self.command, LazyReference):
            return self.command.name.endswith("VERBS")
        return isinstance(self.command, tuple)

    @property
    def verbs(self) -> Sequence["Verb"]:
        """Return the table of the verbs below it; an empty one for a command."""
        return _resolved(self.command) if self.is_group else ()

    @property
    def function(self) -> Callable[..., Any] | None:
        """Return the function that runs: that of a command, or of a group without a verb; None for other groups."""
        found: Callable[..., Any] | None = _resolved(self.default if self.is_group else self.command)
        return found

    @property
    def summary(self) -> str:
        """Return its help, else the first sentence of its function's docstring, without the full stop."""
        if self.help:
            return self.help
        import inspect

        first = inspect.cleandoc(self.function.__doc__ or "").split("\n\n")[0]
        return " ".join(first.split()).removesuffix(".")

    def below(self) -> Iterator[tuple[str, "Verb"]]:
        """Yield every verb below it, groups included, with the words that lead there."""
        for verb in self.verbs:
            yield verb.name, verb
            yield from ((f"{verb.name} {path}", found) for path, found in verb.below())


def _resolved(command: Any) -> Any:
    """Return the object that a row of a table refers to."""
    return command.resolve() if isinstance(command, LazyReference) else command


def find(noun: Verb, words: Sequence[str]) -> tuple[list[Verb], list[str]]:
    """Return the rows from a noun to the command that the words behind it name, and the words left for that command.

    Flags may stand before a verb; they are put behind it, as they belong to the command. A word after a flag that is
    no verb is the flag's value; any other word that is no verb ends the search.
    """
    rows = [noun]
    early: list[str] = []
    rest = list(words)
    while (at := _verb_at(rows[-1].verbs, rest)) is not None:
        early += rest[:at]
        # Two rows may share an alias, as `i` of `info` and `imports`: it is the later one's, as in the nats tool.
        rows.append([verb for verb in rows[-1].verbs if rest[at] in verb.words][-1])
        rest = rest[at + 1 :]
    return rows, [*early, *rest]


def _verb_at(verbs: Sequence[Verb], words: Sequence[str]) -> int | None:
    """Return the position of the verb among the words; None if there is none."""
    after_flag = False
    for at, word in enumerate(words):
        if word == "--":
            return None
        if any(word in verb.words for verb in verbs):
            return at
        is_flag = word.startswith("-") and word != "-"
        if not is_flag and not after_flag:
            return None
        after_flag = is_flag and "=" not in word
    return None
