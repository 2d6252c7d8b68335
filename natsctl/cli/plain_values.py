"""Values of texts, numbers and switches, parsed without pydantic.

Typer from 0.2x on parses every value with pydantic, whose import takes more CPU time than the rest of a short command.
For the plain types of natsctl's flags a parser of our own replaces it; other types, and a Typer that works otherwise,
are left unchanged.
"""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import typer

_PLAIN: dict[Any, Any] = {str: str, int: int, float: float, bool: bool, Path: Path}
_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")
_MAY_BE_EMPTY = ("BODY", "PAYLOAD", "VALUE", "TEXT", "PASSWORD")
"""Metavars of values that may be empty. An empty name, subject or duration is a variable that was not set: taken
for "not given" it would purge a whole stream, or remove a bucket in place of a key."""
EMPTY = "it is empty"
"""Error for "" if a value is needed."""
WHOLE_MIN, WHOLE_MAX = -(2**63), 2**63 - 1
"""Limits of a number of the contract (Go's int64)."""


class PlainValue:
    """Parser of the value of one flag or argument, with the method that Typer calls."""

    __slots__ = ("_kind", "_max", "_min")

    def __init__(self, kind: Any, info: Any) -> None:
        self._kind = kind
        self._min = info.min
        self._max = info.max

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value as the declared type; raises typer.BadParameter. A list for a flag that may be repeated."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        if "" in (value if several else (value,)) and _is_refused_empty(param, ctx):
            raise typer.BadParameter(EMPTY, ctx=ctx, param=param)
        if several:
            return [self._one(each, param, ctx) for each in value]
        return self._one(value, param, ctx)

    def _one(self, value: Any, param: Any, ctx: Any) -> Any:
        if self._kind is bool:
            return self._switch(value, param, ctx)
        try:
            read = value if self._kind is str else self._kind(value)
        except ValueError:
            wanted = "a whole number" if self._kind is int else "a number"
            raise typer.BadParameter(f"{value!r} is not {wanted}.", ctx=ctx, param=param) from None
        if self._kind in (int, float) and not self._in_range(read):
            raise typer.BadParameter(f"{value} is {self._fault(read)}.", ctx=ctx, param=param)
        return read

    def _in_range(self, number: float) -> bool:
        if self._kind is int and not WHOLE_MIN <= number <= WHOLE_MAX:
            return False
        return (self._min is None or number >= self._min) and (self._max is None or number <= self._max)

    def _fault(self, number: float) -> str:
        if self._kind is int and number > WHOLE_MAX:
            return f"too large: it can be at most {WHOLE_MAX if self._max is None else self._max}"
        return f"not {self._bounds()}"

    def _bounds(self) -> str:
        upper = self._max if self._max is not None or self._min is not None else WHOLE_MAX
        texts = (
            f"at least {self._min}" if self._min is not None else "",
            f"at most {upper}" if upper is not None else "",
        )
        return " and ".join(text for text in texts if text)

    def _switch(self, value: Any, param: Any, ctx: Any) -> bool:
        text = str(value).lower()
        if text not in _TRUE + _FALSE:
            raise typer.BadParameter(f"{value!r} is neither true nor false.", ctx=ctx, param=param)
        return text in _TRUE


def _is_refused_empty(param: Any, ctx: Any) -> bool:
    """Return whether "" is a mistake for a parameter; flags of a table check it themselves."""
    if param.name.startswith("flag_") or (param.metavar or "").strip("[].") in _MAY_BE_EMPTY:
        return False
    source = ctx.get_parameter_source(param.name)
    return source is not None and source.name == "COMMANDLINE"


def read_plainly(parameters: list[Any]) -> None:
    """Use the parser above for the flags and arguments of a command that have a plain type."""
    for parameter in parameters:
        described = getattr(parameter, "type_descriptor", None)
        if described is None or not hasattr(parameter, "get_runtime_param"):
            continue
        kind = described.annotation
        if typing.get_origin(kind) is list:
            kind = (typing.get_args(kind) or (None,))[0]
        info = described.parameter_info
        if kind in _PLAIN and getattr(info, "parser", None) is None and not getattr(info, "clamp", False):
            parameter.get_runtime_param = lambda reader=PlainValue(_PLAIN[kind], info): reader
