"""The operators and functions of conditions over documents, and how a member of a document is found.

A member that is absent is nil, and beside a number 0, as documents leave zeroes out.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from natsctl.api.errors import UsageError

MAX_MATCHED: Final = 100_000
"""Characters of a text that a pattern is tried on."""
_GO_NAMES: Final = {"msgs": "messages", "firsttime": "firstts", "lasttime": "lastts", "consumers": "consumercount"}
"""Members of Go's structs whose JSON key is another word."""


def _contains(text: Any, part: Any) -> bool:
    return isinstance(text, str) and isinstance(part, str) and part in text


def _is_in(item: Any, of: Any) -> bool:
    return of is not None and item in of


def _matches(text: Any, pattern: Any) -> bool:
    try:
        return re.search(str(pattern), str(text)[:MAX_MATCHED]) is not None
    except re.error as failure:
        raise UsageError(f"--expression: {pattern!r} is not a regular expression: {failure}") from failure


def _numeric(apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def zeroed(one: Any, other: Any) -> Any:
        if one is None or other is None:
            one, other = (type(other)() if one is None else one), (type(one)() if other is None else other)
        return False if one is None else apply(one, other)

    return zeroed


def _divided(one: Any, other: Any) -> Any:
    if not other:
        raise UsageError("--expression: division by zero")
    return one / other


OPERATORS: Final[dict[str, tuple[int, Callable[[Any, Any], Any]]]] = {
    "==": (4, operator.eq),
    "!=": (4, operator.ne),
    "<": (4, _numeric(operator.lt)),
    "<=": (4, _numeric(operator.le)),
    ">": (4, _numeric(operator.gt)),
    ">=": (4, _numeric(operator.ge)),
    "in": (4, _is_in),
    "contains": (4, _contains),
    "startsWith": (4, lambda text, part: str(text or "").startswith(str(part))),
    "endsWith": (4, lambda text, part: str(text or "").endswith(str(part))),
    "matches": (4, _matches),
    "+": (5, _numeric(operator.add)),
    "-": (5, _numeric(operator.sub)),
    "*": (6, _numeric(operator.mul)),
    "/": (6, _divided),
    "%": (6, operator.mod),
}
"""How strongly each binds, and what it gives."""
FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "len": lambda value: len(value or ()),
    "lower": lambda value: str(value or "").lower(),
    "upper": lambda value: str(value or "").upper(),
}


def looked_up(value: Any, key: Any) -> Any:
    """The member or item, nil where there is none."""
    if isinstance(value, Mapping):
        if key in value:
            return value[key]
        plain = str(key).replace("_", "").lower()
        plain = _GO_NAMES.get(plain, plain)
        return next((item for name, item in value.items() if name.replace("_", "").lower() == plain), None)
    if isinstance(value, list) and isinstance(key, int):
        return value[key] if -len(value) <= key < len(value) else None
    return None
