"""Flags and arguments of commands: their declarations, and the values of a command line.

Typer makes the help pages and words what is wrong with a command line, but its import alone takes twice as long as a
short command does. So commands declare their parameters with `Option` and `Argument`, from which Typer's command is
made where it is needed. A line whose words are all in order is read here: `globals.take_out` has sorted the words by
then, and a value that cannot be read is left to Typer, as is all that `take_out` found unusual.

Typer from 0.2x on reads values with pydantic, whose import takes longer still; `Parameter` reads them for it too.
"""

from __future__ import annotations

import functools
import importlib
import os
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

if TYPE_CHECKING:
    from natsctl.cli.framework.globals import Words
    from natsctl.cli.framework.session import Session


class Context(Protocol):
    """A parameter of this type receives the session of the command line as `obj`; see `flags.session_of`."""

    @property
    def obj(self) -> Any:
        """Return the session."""


class _Context:
    """The context of a command that runs without Typer."""

    __slots__ = ("obj",)

    def __init__(self, session: Session) -> None:
        self.obj = session


class ExitError(Exception):
    """The end of a command with this exit code."""

    def __init__(self, exit_code: int = 0) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class Option:
    """A flag: its spellings (`--state/--no-state` for a switch that can be turned off), and its help."""

    __slots__ = ("help", "hidden", "max", "metavar", "min", "names")

    def __init__(
        self,
        *names: str,
        help: str = "",
        metavar: str = "",
        min: float | None = None,
        max: float | None = None,
        hidden: bool = False,
    ) -> None:
        self.names = names
        self.help = help
        self.metavar = metavar
        self.min = min
        self.max = max
        self.hidden = hidden

    @property
    def spellings(self) -> dict[str, bool]:
        """Return every spelling, and the value that it gives to a switch."""
        found: dict[str, bool] = {}
        for name in self.names:
            on, slash, off = name.partition("/")
            found[on] = True
            if slash:
                found[off] = False
        return found


class Argument:
    """An argument: its name in help, and its help."""

    __slots__ = ("help", "max", "metavar", "min")

    def __init__(
        self, *, metavar: str = "", help: str = "", min: float | None = None, max: float | None = None
    ) -> None:
        self.metavar = metavar
        self.help = help
        self.min = min
        self.max = max


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
"""Metavars of values that may be empty. An empty name, subject or duration is a variable that was not set: taken
for "not given" it would purge a whole stream, or remove a bucket in place of a key."""
EMPTY = "it is empty"
"""Error for "" if a value is needed."""
WHOLE_MIN, WHOLE_MAX = -(2**63), 2**63 - 1
"""Limits of a number of the contract (Go's int64)."""
NEEDED: Any = object()
"""Default of an argument that has to be given."""


class Parameter:
    """A flag or an argument of one command, and the reader of its values, with the method that Typer calls."""

    __slots__ = ("_kind", "annotation", "declared", "default", "name", "several")

    def __init__(self, name: str, annotation: Any, declared: Option | Argument, default: Any = NEEDED) -> None:
        self.name = name
        self.annotation = annotation
        self.declared = declared
        self.default = default
        self._kind, self.several = _KINDS[annotation]

    @property
    def is_switch(self) -> bool:
        """Return whether it is a flag without a value."""
        return self._kind is bool and isinstance(self.declared, Option)

    def refuses(self, text: str) -> bool:
        """Return whether this text on the command line is a mistake; flags of a table check it themselves."""
        return (
            not text and not self.name.startswith("flag_") and self.declared.metavar.strip("[].") not in _MAY_BE_EMPTY
        )

    def read(self, value: Any) -> Any:
        """Return one value as the declared type. Raises ValueError."""
        if self._kind is str:
            return value
        if self._kind is bool:
            return _switch(value)
        try:
            read = self._kind(value)
        except ValueError:
            wanted = "a whole number" if self._kind is int else "a number"
            raise ValueError(f"{value!r} is not {wanted}.") from None
        if self._kind in (int, float) and not self._in_range(read):
            raise ValueError(f"{value} is {self._fault(read)}.")
        return read

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value that Typer asks for; raises typer.BadParameter. A list for a flag that may be repeated."""
        import typer

        if value is None:
            return () if self.several else None
        if any(self.refuses(one) for one in (value if self.several else (value,)) if isinstance(one, str)):
            source = ctx.get_parameter_source(param.name)
            if source is not None and source.name == "COMMANDLINE":
                raise typer.BadParameter(EMPTY, ctx=ctx, param=param)
        try:
            return [self.read(one) for one in value] if self.several else self.read(value)
        except ValueError as failure:
            raise typer.BadParameter(str(failure), ctx=ctx, param=param) from None

    def _in_range(self, number: float) -> bool:
        if self._kind is int and not WHOLE_MIN <= number <= WHOLE_MAX:
            return False
        least, most = self.declared.min, self.declared.max
        return (least is None or number >= least) and (most is None or number <= most)

    def _fault(self, number: float) -> str:
        if self._kind is int and number > WHOLE_MAX:
            return f"too large: it can be at most {WHOLE_MAX if self.declared.max is None else self.declared.max}"
        return f"not {self._bounds()}"

    def _bounds(self) -> str:
        least, most = self.declared.min, self.declared.max
        upper = most if most is not None or least is not None else WHOLE_MAX
        texts = (f"at least {least}" if least is not None else "", f"at most {upper}" if upper is not None else "")
        return " and ".join(text for text in texts if text)


def _switch(value: Any) -> bool:
    text = str(value).lower()
    if text not in _TRUE + _FALSE:
        raise ValueError(f"{value!r} is neither true nor false.")
    return text in _TRUE


def parameters_of(function: Any, hints: dict[str, Any]) -> list[Parameter]:
    """Return the parameters that the annotations of a function declare, with those of its bundles."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    positional = function.__defaults__ or ()
    defaults = dict(zip(names[code.co_argcount - len(positional) : code.co_argcount], positional, strict=True))
    return _declared(hints, names, defaults | (function.__kwdefaults__ or {}))


def _declared(hints: dict[str, Any], names: Iterable[str], defaults: dict[str, Any]) -> list[Parameter]:
    """Return the parameters that annotations declare; the other names are not for the command line."""
    found: list[Parameter] = []
    for name in names:
        hint = hints[name]
        if is_bundle(hint):
            found += _declared(hints_of(hint), hint._fields, hint._field_defaults)
        elif typing.get_origin(hint) is Annotated:
            found.append(Parameter(name, hint.__origin__, hint.__metadata__[0], defaults.get(name, NEEDED)))
    return found


def hints_of(place: Any) -> dict[str, Any]:
    """Return the annotations of a function or class by name.

    Those that are names are looked up: the first text that is compiled costs as much as reading a command line.
    """
    known = getattr(place, "__globals__", {})
    found = {name: known.get(text, text) for name, text in place.__annotations__.items()}
    found.pop("return", None)
    if any(isinstance(one, str | typing.ForwardRef) for one in found.values()):
        return typing.get_type_hints(place, include_extras=True)
    return found


def is_bundle(kind: Any) -> bool:
    """Return whether this is a bundle of options: a NamedTuple whose fields are annotated as options."""
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_field_defaults")


class Command:
    """A command that can run: its function and the parameters of that."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Take a function whose annotations declare parameters, or one that lists them itself (`flags.Flagged`)."""
        self.function = function
        hints: dict[str, Any] = getattr(function, "hints", None) or hints_of(function)
        listed = getattr(function, "parameters", None)
        self.parameters: list[Parameter] = parameters_of(function, hints) if listed is None else listed
        self._context = next((name for name, hint in hints.items() if hint is Context), "")
        self._arguments = [one for one in self.parameters if isinstance(one.declared, Argument)]
        self._flags = {
            spelling: (one, on)
            for one in self.parameters
            if isinstance(one.declared, Option)
            for spelling, on in one.declared.spellings.items()
        }

    @functools.cached_property
    def flags(self) -> dict[str, bool]:
        """Return the flags of the command, and whether each takes a value."""
        return {spelling: not one.is_switch for spelling, (one, _) in self._flags.items()}

    def values(self, words: Words) -> dict[str, Any] | None:
        """Return the values of the parameters; None where Typer has to read the words, or has to say what is wrong."""
        try:
            given = self._given(words)
        except (LookupError, ValueError):
            return None
        for one in self.parameters:
            if one.name in given:
                continue
            if one.default is NEEDED:
                return None
            given[one.name] = one.default
        return given

    def _given(self, words: Words) -> dict[str, Any]:
        """Return the values that the words give. Raises ValueError and LookupError for words that are not in order."""
        if words.unusual:
            raise ValueError
        found: dict[str, Any] = {}
        for spelling, text in words.flags:
            one, on = self._flags[spelling]
            if one.is_switch:
                found[one.name] = on
            elif one.several:
                found.setdefault(one.name, []).append(self._read(one, text))
            else:
                found[one.name] = self._read(one, text)
        left = list(words.arguments)
        for one in self._arguments:
            if one.several and one is self._arguments[-1]:
                if left:
                    found[one.name] = [self._read(one, text) for text in left]
                left = []
            elif one.several:
                raise ValueError
            elif left:
                found[one.name] = self._read(one, left.pop(0))
        if left:
            raise ValueError
        return found

    @staticmethod
    def _read(one: Parameter, text: str | None) -> Any:
        if text is None or one.refuses(text):
            raise ValueError
        return one.read(text)

    def call(self, values: dict[str, Any], context: Any) -> Any:
        """Return the result of the command's function."""
        return self.function(**values, **({self._context: context} if self._context else {}))

    def run(self, values: dict[str, Any], session: Session) -> Any:
        """Return the result of the command, whose values were read here."""
        return self.call(values, _Context(session))

    @functools.cached_property
    def by_typer(self) -> Any:
        """Return Typer's command."""
        main = import_typer()
        import typer

        app = typer.Typer(add_completion=False)
        app.command()(self._for_typer())
        command = main.get_command(app)
        for own in command.params:
            # Other releases read values without pydantic, in a way of their own.
            if hasattr(own, "get_runtime_param"):
                reader = next(one for one in self.parameters if one.name == own.name)
                own.get_runtime_param = lambda reader=reader: reader
        command.add_help_option = False  # `--help` is one of the global options
        return command

    def _for_typer(self) -> Callable[..., Any]:
        """Return the function with a signature of Typer's declarations."""
        import inspect

        import typer

        def function(typer_context: Any, **values: Any) -> Any:
            return self.call(values, typer_context)

        only = inspect.Parameter.KEYWORD_ONLY
        found = [inspect.Parameter("typer_context", only, annotation=typer.Context)]
        for one in self.parameters:
            annotation = Annotated[one.annotation, _typer_declaration(one.declared)]  # type: ignore[name-defined]  # computed
            default = inspect.Parameter.empty if one.default is NEEDED else one.default
            found.append(inspect.Parameter(one.name, only, default=default, annotation=annotation))
        function.__doc__ = self.function.__doc__
        function.__name__ = self.function.__name__
        function.__annotations__ = {one.name: one.annotation for one in found}
        function.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]  # read by inspect
        return function


def _typer_declaration(declared: Option | Argument) -> Any:
    import typer

    common: dict[str, Any] = {
        "help": declared.help or None,
        "metavar": declared.metavar or None,
        "min": declared.min,
        "max": declared.max,
    }
    if isinstance(declared, Argument):
        return typer.Argument(**common)
    return typer.Option(*declared.names, **common, hidden=declared.hidden)


_USE_RICH = "TYPER_USE_RICH"


def import_typer() -> Any:
    """Return `typer.main`, imported without rich: help and errors are plain text."""
    before = os.environ.get(_USE_RICH)
    os.environ[_USE_RICH] = "0"
    try:
        return importlib.import_module("typer.main")
    finally:
        if before is None:
            del os.environ[_USE_RICH]
        else:
            os.environ[_USE_RICH] = before


@functools.cache
def command_of(function: Callable[..., Any]) -> Command:
    """Return the command of a function, created once per process."""
    return Command(function)
