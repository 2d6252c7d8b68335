"""Input of the endpoints of monitoring and of the system account: the server's state, and the options of a request.

Options in a query are parsed as Go does, with Go's texts for malformed ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, Final, Self, TypeAlias

import msgspec

from natsctl.api.codec import go_quote


class BadRequestError(ValueError):
    """Options that an endpoint cannot answer; the text is nats-server's, sent with status 400."""


ReloadDone: TypeAlias = Callable[[BadRequestError | None], None]
"""Called when a reload has ended, with the reason why it was refused."""
ReloadCall: TypeAlias = Callable[[ReloadDone], None]


BAD_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")
"""Invalid escape sequences."""
_ESCAPED: Final = re.compile("%(2[dD]|[46][1-9a-fA-F]|5[0-9aAfF]|7[0-9aA])")
"""Escaped letters, `-` and `_`: characters that names of parameters consist of."""
_FLAGS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
_UNSIGNED: Final = re.compile(r"[0-9]+")
_DIGITS: Final = 20
"""Digits beyond which a number is out of every range."""
_INT_MAX: Final = 2**63 - 1
_UINT_MAX: Final = 2**64 - 1


class Query:
    """The values of a query; the first of a name counts, and an empty one counts as missing."""

    def __init__(self, raw: str) -> None:
        """Parse a query; malformed pairs are left out."""
        self._values: dict[str, str] = {}
        for pair in raw.split("&"):
            if pair and ";" not in pair and not ("%" in pair and BAD_ESCAPE.search(pair)):
                name, _, value = pair.partition("=")
                if "%" in name:
                    name = _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), name)
                self._values.setdefault(name, value)

    def text(self, name: str) -> str:
        value = self._values.get(name, "")
        if "%" in value or "+" in value:  # thousands of other values are not decoded
            from urllib.parse import unquote_plus  # a start does without it

            return unquote_plus(value)
        return value

    def flag(self, name: str) -> bool:
        value = self.text(name)
        if value and value not in _FLAGS:
            raise _refused("boolean", name, "ParseBool", value, "invalid syntax")
        return _FLAGS.get(value, False)

    def number(self, name: str) -> int:
        """Return a number, 0 if missing. Raises BadRequestError."""
        return self._integer(name, "int", "Atoi", _NUMBER, -_INT_MAX - 1, _INT_MAX)

    def unsigned(self, name: str) -> int:
        """Return a non-negative number, 0 if missing. Raises BadRequestError."""
        return self._integer(name, "uint64", "ParseUint", _UNSIGNED, 0, _UINT_MAX)

    def _integer(self, name: str, kind: str, reader: str, shape: re.Pattern[str], least: int, most: int) -> int:
        value = self.text(name)
        if not value:
            return 0
        if not shape.fullmatch(value):
            raise _refused(kind, name, reader, value, "invalid syntax")
        digits = value.lstrip("+-").lstrip("0")
        number = int(digits[: _DIGITS + 1] or "0") * (-1 if value[0] == "-" else 1)
        if not least <= number <= most:
            raise _refused(kind, name, reader, value, "value out of range")
        return number


def _refused(kind: str, name: str, reader: str, value: str, reason: str) -> BadRequestError:
    return BadRequestError(f"Error decoding {kind} for '{name}': strconv.{reader}: parsing {go_quote(value)}: {reason}")


class EndpointOptions(msgspec.Struct, kw_only=True):
    """Options of an endpoint; names are those of the system account's requests."""

    QUERY: ClassVar[dict[str, str]] = {}
    """The query parameter of each option with a different name there; empty: not in queries."""

    @classmethod
    def of(cls, query: Query) -> Self:
        read: dict[type, Callable[[str], Any]] = {bool: query.flag, int: query.number, str: query.text}
        values = {}
        for option in msgspec.structs.fields(cls):
            parameter = cls.QUERY.get(option.name, option.encode_name)
            if parameter:
                values[option.name] = read[type(option.default)](parameter)
        return cls(**values)


NO_SUBJECTS: Final = {"subscriptions": "", "subscriptions_detail": ""}


class ListingOptions(EndpointOptions, kw_only=True):
    subscriptions: bool = False
    subscriptions_detail: bool = False

    @classmethod
    def of(cls, query: Query) -> Self:
        """Return the options of a query; `subs=detail` requests details. Raises BadRequestError."""
        detail = query.text("subs").lower() == "detail"
        options = super().of(query)
        options.subscriptions, options.subscriptions_detail = not detail and query.flag("subs"), detail
        return options
