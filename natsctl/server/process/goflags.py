"""Command lines by the rules of Go's `flag` package, which nats-server's flags follow.

A flag has one or two dashes; its value stands after `=` or is the next argument; a boolean flag takes a value after
`=` only; the first argument that is no flag, or `--`, ends the flags.  Values are checked by their kind here, and
given a meaning by the caller.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

Kind = Literal["bool", "int", "text", "texts"]
"""What a flag's value is; `texts` gathers the values of a flag that is given again and again."""
Value = bool | int | str | tuple[str, ...]

_TRUE: Final = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "false", "FALSE", "False"))


class FlagError(Exception):
    """A command line that cannot be understood; the text says which flag and why."""


class FlagSpec(msgspec.Struct, frozen=True):
    """One flag: the name of the setting that it fills, and the kind of its value."""

    setting: str
    kind: Kind


class Given(msgspec.Struct, frozen=True):
    """What stood on a command line: values by setting (the last one wins), the spelling used, and what followed."""

    values: dict[str, Value]
    spelled: dict[str, str]
    rest: list[str]

    def text(self, setting: str, default: str = "") -> str:
        """Return a text setting."""
        return str(self.values.get(setting, default))

    def number(self, setting: str, default: int) -> int:
        """Return an int setting."""
        found = self.values.get(setting, default)
        return found if isinstance(found, int) else default

    def texts(self, setting: str) -> tuple[str, ...]:
        """Return every value of a setting that may be given more than once."""
        found = self.values.get(setting, ())
        return found if isinstance(found, tuple) else ()

    def flag(self, setting: str, default: bool = False) -> bool:
        """Return a boolean setting."""
        return bool(self.values.get(setting, default))


def parse_flags(argv: Sequence[str], specs: Mapping[str, FlagSpec]) -> Given:
    """Return the settings given by `argv`; raises FlagError."""
    given = Given({}, {}, [])
    arguments = list(argv)
    while arguments:
        argument = arguments.pop(0)
        if len(argument) < 2 or argument[0] != "-":
            given.rest.extend([argument, *arguments])
            return given
        if argument == "--":
            given.rest.extend(arguments)
            return given
        name, has_value, value = argument[2 if argument.startswith("--") else 1 :].partition("=")
        if not name or name[0] == "-":
            raise FlagError(f"bad flag syntax: {argument}")
        spec = specs.get(name)
        if spec is None:
            raise FlagError(f"flag provided but not defined: -{name}")
        if spec.kind == "bool":
            value = value if has_value else "true"
        elif not has_value:
            if not arguments:
                raise FlagError(f"flag needs an argument: -{name}")
            value = arguments.pop(0)
        if spec.kind == "texts":
            given.values[spec.setting] = (*given.texts(spec.setting), value)
        else:
            given.values[spec.setting] = _value(name, spec.kind, value)
        given.spelled[spec.setting] = argument.partition("=")[0]
    return given


def _value(name: str, kind: Kind, text: str) -> bool | int | str:
    if kind == "text":
        return text
    if kind == "bool":
        if text not in _TRUE and text not in _FALSE:
            raise FlagError(f'invalid boolean value "{text}" for -{name}: parse error')
        return text in _TRUE
    try:
        return int(text, 0)
    except ValueError:
        raise FlagError(f'invalid value "{text}" for flag -{name}: parse error') from None
