# LEAD: read natsctl/cli/NOTE-TO-CLI-OWNERS.md before going on: Typer is fixed by the user; this module must become Typer-based.
"""Commands as typed functions, their flags as annotations, and the table that finds them.

A command is a plain function. Its first parameter is the `Session`; each further one is annotated with what the command line says:

    @app.command("info", "nfo", "i")
    def info(
        session: Session,
        stream: Annotated[str | None, Argument("STREAM", help="the stream to show")] = None,
        json: Annotated[bool, Option("--json", "-j", help="show the server's answer as JSON")] = False,
    ) -> None:
        '''Show a stream's configuration and state.'''

The annotated type decides how a value is read: `str`, `int`, `float`, an Enum or a Literal (choices), `list[...]` (repeatable), `bool` (a
switch), `bool | None` with `negatable=True` (`--x`, `--no-x`, or None when absent). `parse=` replaces the reading of one value; it raises
ValueError. Names and one-line helps come from here, so nothing is described twice: parsing (parse.py) and help (usage.py) read the same.

Why not a framework: docs/adr/0010.
"""

from __future__ import annotations

import enum
import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class Option:
    """A flag of a command: `Option("--max-age", "-m", help=…)`; the first long name is the one that help shows."""

    __slots__ = ("flags", "help", "hidden", "metavar", "negatable", "parse")

    def __init__(
        self,
        *flags: str,
        help: str = "",
        metavar: str = "",
        parse: Callable[[str], Any] | None = None,
        negatable: bool = False,
        hidden: bool = False,
    ) -> None:
        self.flags = flags
        self.help = help
        self.metavar = metavar
        self.parse = parse
        self.negatable = negatable
        self.hidden = hidden


class Argument:
    """A positional value of a command; optional when its parameter has a default."""

    __slots__ = ("help", "metavar", "parse")

    def __init__(self, metavar: str = "", *, help: str = "", parse: Callable[[str], Any] | None = None) -> None:
        self.metavar = metavar
        self.help = help
        self.parse = parse


@dataclass(slots=True)
class Parameter:
    """One flag or argument of one command, ready to read values with."""

    name: str
    spec: Option | Argument
    read: Callable[[str], Any]
    default: Any
    required: bool = False
    repeated: bool = False
    switch: bool = False
    choices: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """How help and errors call it: `--max-age`, or `STREAM`."""
        if isinstance(self.spec, Option):
            return next((flag for flag in self.spec.flags if flag.startswith("--")), self.spec.flags[0])
        return self.spec.metavar or self.name.upper()


@dataclass(slots=True)
class Command:
    """A command's function and, read once on first use, its parameters."""

    name: str
    function: Callable[..., Any]
    aliases: tuple[str, ...] = ()
    hidden: bool = False
    raw: bool = False
    _parameters: list[Parameter] | None = field(default=None, repr=False)

    @property
    def parameters(self) -> list[Parameter]:
        """The flags and arguments, in the order of the function's signature."""
        if self._parameters is None:
            self._parameters = [] if self.raw else parameters_of(self.function)
        return self._parameters

    @property
    def help(self) -> str:
        """The function's docstring, unindented."""
        return inspect.getdoc(self.function) or ""


class App:
    """The commands of one noun (`stream`), or with `main` a command that stands alone (`publish`)."""

    def __init__(self, name: str, *, help: str = "") -> None:
        self.name = name
        self.help = help
        self.commands: dict[str, Command] = {}
        self.groups: dict[str, App] = {}
        self.main_command: Command | None = None

    def command(
        self, name: str, *aliases: str, hidden: bool = False, raw: bool = False
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register the decorated function; `raw` gives it the unread words as one `list[str]` after the session."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.commands[name] = Command(name, function, aliases, hidden, raw)
            return function

        return register

    def main(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Register the decorated function as the whole noun, which then has no commands below it."""
        self.main_command = Command(self.name, function)
        return function

    def group(self, name: str, *, help: str = "") -> App:
        """A noun below this noun, as `stream template`."""
        below = self.groups[name] = App(f"{self.name} {name}", help=help)
        return below

    def find(self, word: str) -> Command | None:
        """The command with that name or alias."""
        return self.commands.get(word) or next((c for c in self.commands.values() if word in c.aliases), None)


def parameters_of(function: Callable[..., Any]) -> list[Parameter]:
    """The parameters that a command function declares by its annotations, without the session."""
    hints = typing.get_type_hints(function, include_extras=True)
    found = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        annotated = hints[parameter.name]
        spec = next((m for m in getattr(annotated, "__metadata__", ()) if isinstance(m, Option | Argument)), None)
        if spec is None:
            raise TypeError(f"{function.__qualname__}: {parameter.name} has neither Option nor Argument")
        found.append(_parameter(parameter, annotated.__origin__, spec))
    return found


def _parameter(declared: inspect.Parameter, kind: Any, spec: Option | Argument) -> Parameter:
    required = declared.default is inspect.Parameter.empty
    kind = _without_none(kind)
    repeated = typing.get_origin(kind) is list
    if repeated:
        kind = typing.get_args(kind)[0]
    read, choices = _reader(kind)
    default = None if required else declared.default
    switch = kind is bool and spec.parse is None
    return Parameter(declared.name, spec, spec.parse or read, default, required, repeated, switch, choices)


def _without_none(kind: Any) -> Any:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return next(part for part in typing.get_args(kind) if part is not type(None))
    return kind


def _reader(kind: Any) -> tuple[Callable[[str], Any], tuple[str, ...]]:
    """How one word becomes a value of that type, and the words that are allowed if they can be listed."""
    if typing.get_origin(kind) is typing.Literal:
        return str, tuple(typing.get_args(kind))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind, tuple(str(member.value) for member in kind)
    if kind is int:
        return _read_int, ()
    if kind is float:
        return float, ()
    if kind is bool:
        return _read_bool, ()
    return str, ()


def _read_int(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise ValueError(f"expected a whole number, not {word!r}") from None


def _read_bool(word: str) -> bool:
    if word.lower() in ("true", "1", "yes"):
        return True
    if word.lower() in ("false", "0", "no"):
        return False
    raise ValueError(f"expected true or false, not {word!r}")
