"""`${NAME}` in the texts of documents: values of the command line and the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_OPEN: Final = "${"
_REFERENCE: Final = re.compile(r"(?P<literal>\$\$\{)|\$\{(?P<body>[^}]*)(?P<close>\}?)")
_BODY: Final = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:(?P<how>:[-?])(?P<rest>.*))?", re.DOTALL)
_FORMS: Final = "expected ${NAME}, ${NAME:-default} or ${NAME:?message}, and $${ for a literal ${"


class InterpolationError(ValueError):
    """A `${…}` is malformed, or names a variable that is not set; the text is for users."""


def has_references(text: str) -> bool:
    """Return whether there may be references to expand."""
    return _OPEN in text


def is_one_reference(text: str) -> bool:
    """Return whether a text is one `${…}` and nothing else."""
    found = _REFERENCE.fullmatch(text)
    return found is not None and found["body"] is not None


def escaped(text: str) -> str:
    """Return the text that `expanded` turns into `text`, whatever the environment."""
    return text.replace(_OPEN, "$${")


def expanded(text: str, values: Mapping[str, str]) -> str:
    """Return the text with its references replaced, once: their values are not expanded again.

    Raises InterpolationError.
    """

    def replace(found: re.Match[str]) -> str:
        return _OPEN if found["literal"] else _value(found, values)

    return _REFERENCE.sub(replace, text)


def _value(found: re.Match[str], values: Mapping[str, str]) -> str:
    body = _BODY.fullmatch(found["body"])
    if body is None or not found["close"]:
        raise InterpolationError(f"{found[0]}: {_FORMS}")
    name, how, rest = body["name"], body["how"], body["rest"] or ""
    if _OPEN in rest:
        raise InterpolationError(f"{found[0]}: a default can not hold another ${{…}}")
    value = values.get(name)
    if value or (value is not None and how is None):
        return value
    if how == ":-":
        return rest
    unset = "is not set" if value is None else "is empty"
    raise InterpolationError(f"{name} {unset}{f': {rest}' if rest else ': set it, or give --var ' + name + '=VALUE'}")
