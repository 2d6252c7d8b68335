"""The functions of Terraform that need nothing but their arguments; those that are not here are told as such."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from natsctl.plan.terraform.values import ExpressionError, list_of, map_of, number_of, text_value, truth_of, whole

MAX_RANGE: Final = 1024
"""The most numbers of one `range`, as in Terraform."""


def call(name: str, arguments: list[Any]) -> Any:
    """Return the result of a function. Raises ExpressionError for an unknown one, or for wrong arguments."""
    function = _FUNCTIONS.get(name)
    if function is None:
        raise ExpressionError(f"the function {name} can not be worked out here: write its value instead")
    try:
        return function(*arguments)
    except (TypeError, ValueError, IndexError, KeyError, OverflowError) as error:
        raise ExpressionError(f"{name}: wrong arguments") from error


def _unique(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if item not in found:
            found.append(item)
    return found


def _set(items: list[Any]) -> list[Any]:
    """Return the values of a set in the order of its texts."""
    return sorted(_unique(list_of(items)), key=lambda item: (str(type(item)), item))


def _flat(items: list[Any]) -> list[Any]:
    flat: list[Any] = []
    for item in list_of(items):
        flat += _flat(item) if isinstance(item, list) else [item]
    return flat


def _merged(*maps: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for one in maps:
        merged |= map_of(one)
    return merged


def _coalesced(*values: Any) -> Any:
    return next(value for value in values if value not in (None, ""))


def _looked_up(where: dict[str, Any], key: str, *default: Any) -> Any:
    return map_of(where)[key] if not default else map_of(where).get(key, default[0])


def _formatted(pattern: str, *values: Any) -> str:
    """Return `format` with %s, %d, %v, %q and widths: those that Python's own formatting has as well."""
    wanted = pattern.replace("%v", "%s").replace("%q", '"%s"')
    words = [text_value(value) if isinstance(value, bool) or value is None else value for value in values]
    return wanted % tuple(words)


def _numbers(*bounds: int) -> list[int]:
    numbers = range(*bounds)
    if len(numbers) > MAX_RANGE:
        raise ExpressionError(f"range: more than {MAX_RANGE} numbers")
    return list(numbers)


def _length(value: Any) -> int:
    return len(value)


def _element(items: list[Any], index: int) -> Any:
    return list_of(items)[index % len(items)]


def _divided(value: Any, base: int) -> int:
    return int(text_value(value), base)


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "abs": lambda value: abs(number_of(value)),
    "ceil": lambda value: math.ceil(number_of(value)),
    "coalesce": _coalesced,
    "compact": lambda items: [item for item in list_of(items) if item not in (None, "")],
    "concat": lambda *lists: [item for one in lists for item in list_of(one)],
    "contains": lambda items, item: item in list_of(items),
    "distinct": lambda items: _unique(list_of(items)),
    "element": _element,
    "endswith": lambda text, end: text_value(text).endswith(end),
    "flatten": _flat,
    "floor": lambda value: math.floor(number_of(value)),
    "format": _formatted,
    "join": lambda separator, items: text_value(separator).join(text_value(item) for item in list_of(items)),
    "jsondecode": lambda text: json.loads(text_value(text)),
    "jsonencode": lambda value: json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False),
    "keys": lambda where: sorted(map_of(where)),
    "length": _length,
    "lookup": _looked_up,
    "lower": lambda text: text_value(text).lower(),
    "max": lambda *values: max(number_of(value) for value in values),
    "merge": _merged,
    "min": lambda *values: min(number_of(value) for value in values),
    "parseint": _divided,
    "pow": lambda base, power: whole(math.pow(number_of(base), number_of(power))),
    "range": _numbers,
    "replace": lambda text, old, new: text_value(text).replace(old, new),
    "reverse": lambda items: list_of(items)[::-1],
    "sort": lambda items: sorted(text_value(item) for item in list_of(items)),
    "split": lambda separator, text: text_value(text).split(separator) if text else [],
    "startswith": lambda text, start: text_value(text).startswith(start),
    "substr": lambda text, at, size: text_value(text)[at:] if size < 0 else text_value(text)[at : at + size],
    "title": lambda text: text_value(text).title(),
    "tobool": truth_of,
    "tolist": list_of,
    "tomap": map_of,
    "tonumber": number_of,
    "toset": _set,
    "tostring": text_value,
    "trim": lambda text, marks: text_value(text).strip(marks),
    "trimprefix": lambda text, prefix: text_value(text).removeprefix(prefix),
    "trimspace": lambda text: text_value(text).strip(),
    "trimsuffix": lambda text, suffix: text_value(text).removesuffix(suffix),
    "upper": lambda text: text_value(text).upper(),
    "values": list_of,
}
