"""What expressions of Terraform come to, and how one type becomes another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from natsctl.plan.asset import Place


class ExpressionError(Exception):
    """An expression has no value, with the reason; `place` is its location if known more closely than by the caller."""

    def __init__(self, reason: str, place: Place | None = None) -> None:
        super().__init__(reason)
        self.place = place


@runtime_checkable
class Named(Protocol):
    """A value whose attributes are evaluated on demand: `var`, `local`, a resource."""

    def attribute(self, name: str) -> Any:
        """Return one of them. Raises ExpressionError."""


class Loop(Named):
    """`each`, `count` and the iterators of dynamic blocks, by name."""

    def __init__(self, word: str, values: Mapping[str, Any]) -> None:
        self._word = word
        self._values = values

    def attribute(self, name: str) -> Any:
        """Return one of its values."""
        if name not in self._values:
            raise ExpressionError(f"{self._word} has no {name}")
        return self._values[name]


def number_of(value: Any) -> int | float:
    """Return a number, also from text that is one. Raises ExpressionError."""
    if isinstance(value, str):
        try:
            return whole(float(value)) if any(mark in value for mark in ".eE") else int(value)
        except (ValueError, OverflowError) as error:
            raise ExpressionError(f"expected a number, got {value!r}") from error
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ExpressionError(f"expected a number, got {said(value)}")
    return value


def whole(value: int | float) -> int | float:
    """Return the same number as an integer where it is one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def truth_of(value: Any) -> bool:
    """Return true or false, also from text. Raises ExpressionError."""
    words = {"true": True, "false": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in words:
        return words[value]
    raise ExpressionError(f"expected true or false, got {said(value)}")


def text_value(value: Any) -> str:
    """Return a text, also from a number or a truth. Raises ExpressionError."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(whole(value))
    raise ExpressionError(f"expected a text, got {said(value)}")


def list_of(value: Any) -> list[Any]:
    """Return a list; a map has its values, in the order of its keys. Raises ExpressionError."""
    if isinstance(value, dict):
        return [value[key] for key in sorted(value)]
    if not isinstance(value, list):
        raise ExpressionError(f"expected a list, got {said(value)}")
    return value


def map_of(value: Any) -> dict[str, Any]:
    """Return a map. Raises ExpressionError."""
    if not isinstance(value, dict):
        raise ExpressionError(f"expected a map, got {said(value)}")
    return value


def said(value: Any) -> str:
    """Return a value as a fault quotes it."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, Named):
        return "a whole resource"
    return repr(value) if isinstance(value, str) else text_value(value)
