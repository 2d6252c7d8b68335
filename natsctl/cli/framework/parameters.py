"""Flags and arguments of commands: their declarations, and the values of a command line.

Commands declare their parameters with `Option` and `Argument`, or with the rows of a table (flags.py). A line whose
arguments are in order is sorted here: `globals.take_out` has found the flags by then. Typer (its import takes longer
than a short command) sorts the others, and reports their faults (irregular_lines.py).
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from natsctl.api.errors import UsageError

if TYPE_CHECKING:
    from natsctl.cli.framework.flags import Flag
    from natsctl.cli.framework.globals import Words


class ExitError(Exception):
    """The end of a command with this exit code."""

    def __init__(self, exit_code: int = 0) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class Argument:
    """An argument: its name in help, and its help."""

    def __init__(
        self, *, metavar: str = "", help: str = "", min: float | None = None, max: float | None = None
    ) -> None:
        self.metavar = metavar
        self.help = help
        self.min = min
        self.max = max


class Option(Argument):
    """A flag: its spellings (`--state/--no-state` for a switch that can be turned off), and its help."""

    def __init__(self, *names: str, hidden: bool = False, **described: Any) -> None:
        super().__init__(**described)
        self.names = names
        self.hidden = hidden

    @property
    def spellings(self) -> dict[str, bool]:
        """Return every spelling, and the value that it gives to a switch."""
        values: dict[str, bool] = {}
        for name in self.names:
            on, slash, off = name.partition("/")
            values[on] = True
            if slash:
                values[off] = False
        return values


_KINDS: dict[Any, tuple[type, bool]] = {
    annotation: (kind, several)
    for kind in (str, int, float, bool, Path)
    for several, whole in ((False, kind), (True, list[kind]))  # type: ignore[valid-type]  # computed
    for annotation in (whole, whole | None)
}
"""Type of one value, and whether there may be several, by the annotations that a parameter can have."""
_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")
_MAY_BE_EMPTY = ("BODY", "PAYLOAD", "VALUE", "TEXT", "PASSWORD", "PATTERN")
"""Metavars of values that may be empty. An empty name, subject or duration is a variable that was not set: treated as
missing it would purge a whole stream, or remove a bucket instead of a key."""
WHOLE_MIN, WHOLE_MAX = -(2**63), 2**63 - 1
"""Limits of a number of the contract (Go's int64)."""
NEEDED: Any = object()
"""Default of an argument that has to be given."""


class Parameter:
    """A flag or an argument of one command, and the reader of its values."""

    __slots__ = ("_kind", "declared", "default", "name", "several")

    def __init__(self, name: str, annotation: Any, declared: Any, default: Any = NEEDED) -> None:
        self.name = name
        self.declared = declared
        self.default = default
        self._kind, self.several = _KINDS[annotation]

    @property
    def is_option(self) -> bool:
        return isinstance(self.declared, Option)

    @property
    def is_switch(self) -> bool:
        """Return whether it is a flag without a value."""
        return self._kind is bool and self.is_option

    @property
    def is_needed(self) -> bool:
        return self.default is NEEDED

    @property
    def label(self) -> str:
        """Return its name in an error."""
        if self.is_option:
            return str(self.declared.names[0]).partition("/")[0]
        return str(self.declared.metavar or self.name).strip("[].")

    def read(self, given: Any) -> Any:
        """Return the value of a text, a list of texts, or a switch. Raises UsageError."""
        if self.is_switch:
            return given
        try:
            return [self._read(text) for text in given] if self.several else self._read(given)
        except ValueError as failure:
            raise UsageError(f"{self.label}{failure}") from None

    def _read(self, text: str) -> Any:
        # Flags of a table check empty values themselves.
        if not text and not self.name.startswith("flag_") and self.declared.metavar.strip("[].") not in _MAY_BE_EMPTY:
            raise ValueError(" is empty")
        if self._kind is str:
            return text
        if self._kind is bool:
            if text.lower() not in _TRUE + _FALSE:
                raise ValueError(f": {text!r} is neither true nor false")
            return text.lower() in _TRUE
        try:
            value = self._kind(text)
        except ValueError:
            raise ValueError(f": {text!r} is not {'a whole number' if self._kind is int else 'a number'}") from None
        if self._kind in (int, float) and (fault := self._fault(value)):
            raise ValueError(f": {text} is {fault}")
        return value

    def _fault(self, number: float) -> str:
        low, high = self.declared.min, self.declared.max
        if self._kind is int and number > WHOLE_MAX:
            return f"too large: it can be at most {WHOLE_MAX if high is None else high}"
        if (low is None or number >= low) and (high is None or number <= high) and number >= WHOLE_MIN:
            return ""
        upper = high if high is not None or low is not None else WHOLE_MAX
        bounds = (f"at least {low}" if low is not None else "", f"at most {upper}" if upper is not None else "")
        return f"not {' and '.join(filter(None, bounds))}"


def parameters_of(function: Any, hints: dict[str, Any]) -> list[Parameter]:
    """Return the parameters that the annotations of a function and its bundles declare."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    positional = function.__defaults__ or ()
    defaults = dict(zip(names[code.co_argcount - len(positional) : code.co_argcount], positional, strict=True))
    return _declared(hints, names, defaults | (function.__kwdefaults__ or {}))


def _declared(hints: dict[str, Any], names: Iterable[str], defaults: dict[str, Any]) -> list[Parameter]:
    """Return the parameters that annotations declare; the other names are not for the command line."""
    declared: list[Parameter] = []
    for name in names:
        hint = hints[name]
        if _is_bundle(hint):
            declared += _declared(hints_of(hint), hint._fields, hint._field_defaults)
        elif typing.get_origin(hint) is Annotated:
            declared.append(Parameter(name, hint.__origin__, hint.__metadata__[0], defaults.get(name, NEEDED)))
    return declared


def hints_of(source: Any) -> dict[str, Any]:
    """Return the annotations of a function or class by name.

    Annotations that are names are looked up: compiling the first text costs as much as reading a command line.
    """
    known = getattr(source, "__globals__", {})
    hints = {name: known.get(text, text) for name, text in source.__annotations__.items()}
    hints.pop("return", None)
    if any(isinstance(hint, str | typing.ForwardRef) for hint in hints.values()):
        return typing.get_type_hints(source, include_extras=True)
    return hints


def _is_bundle(kind: Any) -> bool:
    """Return whether this is a bundle of options: a NamedTuple with fields annotated as options."""
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


class Command:
    """A command that can run: its function, and the parameters of that.

    `session` is the session of the command line, `given` the flags of the table that `flags.flagged` named; a parameter
    whose type is a bundle of options takes all of them.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._table: Sequence[Flag] = getattr(function, "flag_table", ())
        self._hints: dict[str, Any] = getattr(function, "hints", None) or hints_of(function)
        listed: list[Parameter] | None = getattr(function, "parameters", None)
        self.parameters = parameters_of(function, self._hints) if listed is None else listed
        self.parameters += [flag.declared() for flag in self._table]
        self.arguments = [parameter for parameter in self.parameters if not parameter.is_option]
        self.options = [parameter for parameter in self.parameters if parameter.is_option]
        self._flags = {
            spelling: (option, on) for option in self.options for spelling, on in option.declared.spellings.items()
        }

    @functools.cached_property
    def flags(self) -> dict[str, bool]:
        """Return the flags of the command, and whether each takes a value."""
        return {spelling: not parameter.is_switch for spelling, (parameter, _) in self._flags.items()}

    def values(self, words: Words, path: str = "") -> dict[str, Any]:
        """Return the values of the parameters. Raises UsageError."""
        given = self.sorted(words)
        if given is None:
            from natsctl.cli.framework.irregular_lines import sorted_by_typer

            given = sorted_by_typer(self.parameters, list(words.all), path)
        try:
            return {
                parameter.name: parameter.read(given[parameter.name]) if parameter.name in given else parameter.default
                for parameter in self.parameters
            }
        except UsageError as failure:
            failure.hint = f"see {path} --help"
            raise

    def sorted(self, words: Words) -> dict[str, Any] | None:
        """Return the text or switch of each given parameter, or None if the arguments are not in order."""
        if words.unusual:
            return None
        given: dict[str, Any] = {}
        for spelling, text in words.flags:
            parameter, on = self._flags[spelling]
            if parameter.several:
                given.setdefault(parameter.name, []).append(text)
            else:
                given[parameter.name] = on if parameter.is_switch else text
        left = list(words.arguments)
        for parameter in self.arguments:
            if parameter.several and left:
                given[parameter.name], left = left, []
            elif left:
                given[parameter.name] = left.pop(0)
        if left or any(one.is_needed and one.name not in given for one in self.parameters):
            return None
        return given

    def call(self, values: dict[str, Any], session: Any) -> Any:
        keywords: dict[str, Any] = {}
        for name, hint in self._hints.items():
            if name == "session":
                keywords[name] = session
            elif _is_bundle(hint):
                keywords[name] = hint(**{field: values[field] for field in hint._fields})
            elif name == "given" and self._table:
                read = ((flag, values[flag.parameter]) for flag in self._table)
                keywords[name] = {flag.name: flag.read(value) for flag, value in read if value not in (None, [])}
            elif name in values:
                keywords[name] = values[name]
        return self.function(**keywords)


@functools.cache
def command_of(function: Callable[..., Any]) -> Command:
    """Return the command of a function, created once per process."""
    return Command(function)
