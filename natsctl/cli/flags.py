"""Flags that set one field of a configuration: the rows of the tables, how values are read and put in place.

A table (stream_flags.py, consumer_flags.py) says for each flag which field it sets. Commands take all flags of a table
with `@flagged(TABLE)`: the decorated function has a parameter `given: Given`, which receives the flags that were on the
command line, in wire values, and only those. So "not given" and "given as zero" never mix; prompts and `--help` come
from the same rows.
"""

from __future__ import annotations

import functools
import inspect
import json
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from natsctl.api.errors import UsageError
from natsctl.api.units import parse_duration, parse_size

Given = dict[str, Any]
"""Flag (`--max-age`) → the wire value that was asked for."""

Config = dict[str, Any]
"""A configuration in wire spelling."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How the words of a flag become one wire value."""

    metavar: str
    read: Callable[[str], Any]
    repeated: bool = False
    gather: Callable[[list[Any]], Any] | None = None
    """Makes the one value of a repeatable flag of its single readings."""
    switch: bool = False


def _duration(text: str) -> int:
    return -1 if text == "-1" else parse_duration(text)


def _whole(text: str) -> int:
    try:
        return int(text.replace("_", ""))
    except ValueError:
        raise ValueError(f"expected a whole number, not {text!r}") from None


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _flat(parts: list[list[str]]) -> list[str]:
    return list(dict.fromkeys(word for part in parts for word in part))


def _pair(text: str) -> tuple[str, str]:
    cut = min((at for at in (text.find("="), text.find(":")) if at > 0), default=-1)
    if cut < 0:
        raise ValueError(f"expected KEY=VALUE, not {text!r}")
    return text[:cut].strip(), text[cut + 1 :].strip()


def _source(text: str) -> Config:
    if not text.lstrip().startswith("{"):
        return {"name": text}
    try:
        source = json.loads(text)
    except ValueError as error:
        raise ValueError(f"expected a stream name or a JSON object: {error}") from None
    if not source.get("name"):
        raise ValueError('the JSON object needs a "name"')
    return dict(source)


TEXT = Kind("TEXT", str)
WORDS = Kind("NAME[,NAME]", _words, repeated=True, gather=_flat)
WHOLE = Kind("N", _whole)
SIZE = Kind("SIZE", parse_size)
DURATION = Kind("DURATION", _duration)
SWITCH = Kind("", bool, switch=True)
PAIRS = Kind("KEY=VALUE", _pair, repeated=True, gather=dict)
SOURCE = Kind("NAME|JSON", _source)
SOURCES = Kind("NAME|JSON", _source, repeated=True, gather=list)


def choice(*words: str, **spelled: str) -> Kind:
    """A kind that takes one of `words`, or a word of `spelled` for its wire value; case does not matter."""
    values = {**{word: word for word in words}, **spelled}

    def read(text: str) -> str:
        if text.lower() not in values:
            raise ValueError(f"expected one of {', '.join(values)}, not {text!r}")
        return values[text.lower()]

    return Kind("|".join(words), read)


Place = Callable[[Config, Any], None]


@dataclass(frozen=True, slots=True)
class Flag:
    """One row: the flag, what it sets (a dotted field, or a function that places it), and where it is offered."""

    name: str
    kind: Kind
    to: str | Place
    help: str
    add: bool = True
    edit: bool = True
    aliases: tuple[str, ...] = ()

    def place(self, config: Config, value: Any) -> None:
        """Put the value into a configuration."""
        if isinstance(self.to, str):
            put(config, self.to, value)
        else:
            self.to(config, value)

    @property
    def parameter(self) -> str:
        """The name of its parameter in a command function, apart from those that the function has itself."""
        return "flag_" + self.name.lstrip("-").replace("-", "_")

    def read(self, words: Any) -> Any:
        """The wire value of what the command line gave. Raises UsageError that names the flag."""
        if self.kind.switch:
            return words
        try:
            if self.kind.gather is None:
                return self.kind.read(words)
            return self.kind.gather([self.kind.read(word) for word in words])
        except ValueError as error:
            raise UsageError(f"{self.name}: {error}") from error

    def annotation(self) -> Any:
        """The annotation of its parameter in a command function."""
        if self.kind.switch:
            names = f"{self.name}/--no-{self.name.removeprefix('--')}"
            return Annotated[bool | None, typer.Option(names, help=self.help, show_default=False)]
        option = typer.Option(self.name, *self.aliases, help=self.help, metavar=self.kind.metavar, show_default=False)
        return Annotated[list[str] | None, option] if self.kind.repeated else Annotated[str | None, option]


def put(config: Config, path: str, value: Any) -> None:
    """Set a dotted field; the objects on the way are made, and not shared with where they came from."""
    head, dot, rest = path.partition(".")
    if not dot:
        config[head] = value
        return
    below = dict(config.get(head) or {})
    put(below, rest, value)
    config[head] = below


def inverted(field: str) -> Place:
    """A placer for a switch whose field means the opposite."""
    return lambda config, value: put(config, field, not value)


def removed(field: str) -> Place:
    """A placer for a switch that takes a field away."""

    def place(config: Config, value: Any) -> None:
        if value:
            config.pop(field, None)

    return place


def merged(field: str) -> Place:
    """A placer for pairs: they join those that are there, and an empty value takes its key away."""

    def place(config: Config, value: Mapping[str, str]) -> None:
        pairs = {**(config.get(field) or {}), **value}
        config[field] = {key: text for key, text in pairs.items() if text}

    return place


def apply(config: Config, table: Sequence[Flag], given: Given) -> None:
    """Put every given flag of the table into the configuration."""
    for flag in table:
        if flag.name in given:
            flag.place(config, given[flag.name])


def flagged(table: Sequence[Flag]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a command take all flags of `table`; its parameter `given` receives those that were used."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        by_parameter = {flag.parameter: flag for flag in table}

        @functools.wraps(function)
        def command(*arguments: Any, **keywords: Any) -> Any:
            given: Given = {}
            for name in by_parameter.keys() & keywords.keys():
                value, flag = keywords.pop(name), by_parameter[name]
                if value is not None and not (flag.kind.repeated and not value):
                    given[flag.name] = flag.read(value)
            return function(*arguments, given=given, **keywords)

        _declare(command, function, table)
        return command

    return decorate


def _declare(command: Callable[..., Any], function: Callable[..., Any], table: Sequence[Flag]) -> None:
    """Give `command` the signature of `function` with the table's flags in the place of `given`."""
    hints = typing.get_type_hints(function, include_extras=True)
    parameters = []
    for own in inspect.signature(function).parameters.values():
        if own.name == "given":
            continue
        annotated = hints[own.name]
        parameters.append(own.replace(annotation=annotated, kind=inspect.Parameter.POSITIONAL_OR_KEYWORD))
    generated = {flag.parameter: flag.annotation() for flag in table}
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters += [inspect.Parameter(name, keyword, default=None, annotation=a) for name, a in generated.items()]
    hints.pop("given", None)
    command.__annotations__ = {**hints, **generated}
    vars(command)["__signature__"] = inspect.Signature(parameters)
