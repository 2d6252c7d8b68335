"""Values of texts, numbers and switches read without pydantic.

Typer from 0.2x on reads every value through pydantic, whose import costs more CPU time than the rest of a short
command. For the plain types that natsctl's flags have, a reader of our own is put in its place; any other type, and a
Typer that works otherwise, stays as it is.
"""

from __future__ import annotations

import typing
from typing import Any

import typer

_PLAIN: dict[Any, Any] = {str: str, int: int, float: float, bool: bool}
_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")


class PlainValue:
    """Reads the value of one flag or argument; has the method that Typer calls on its own reader."""

    __slots__ = ("_kind", "_max", "_min")

    def __init__(self, kind: Any, info: Any) -> None:
        self._kind = kind
        self._min = info.min
        self._max = info.max

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as the declared type; raises typer.BadParameter. A list for a flag that may be repeated."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        if several:
            return [self._one(each, param, ctx) for each in value]
        return self._one(value, param, ctx)

    def _one(self, value: Any, param: Any, ctx: Any) -> Any:
        if self._kind is bool:
            return self._switch(value, param, ctx)
        try:
            read = self._kind(value)
        except ValueError:
            wanted = "a whole number" if self._kind is int else "a number"
            raise typer.BadParameter(f"{value!r} is not {wanted}.", ctx=ctx, param=param) from None
        if self._kind is not str and not self._in_range(read):
            bounds = " and ".join(
                text
                for text in (
                    f"at least {self._min}" if self._min is not None else "",
                    f"at most {self._max}" if self._max is not None else "",
                )
                if text
            )
            raise typer.BadParameter(f"{value} is not {bounds}.", ctx=ctx, param=param)
        return read

    def _in_range(self, number: float) -> bool:
        return (self._min is None or number >= self._min) and (self._max is None or number <= self._max)

    def _switch(self, value: Any, param: Any, ctx: Any) -> bool:
        text = str(value).lower()
        if text not in _TRUE + _FALSE:
            raise typer.BadParameter(f"{value!r} is neither true nor false.", ctx=ctx, param=param)
        return text in _TRUE


def read_plainly(parameters: list[Any]) -> None:
    """Give the flags and arguments of a command the reader above where their type is plain."""
    for parameter in parameters:
        described = getattr(parameter, "type_descriptor", None)
        if described is None or getattr(parameter, "_runtime_param", ...) is not None:
            continue
        kind = described.annotation
        if typing.get_origin(kind) is list:
            kind = (typing.get_args(kind) or (None,))[0]
        info = described.parameter_info
        if kind in _PLAIN and getattr(info, "parser", None) is None and not getattr(info, "clamp", False):
            parameter._runtime_param = PlainValue(_PLAIN[kind], info)
