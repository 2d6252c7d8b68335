"""Typed values and blocks of nats.conf: each function returns the value of an item, or raises ConfError.

A block is read by a table of its keys: `entries` pairs each value with the table's entry for its key, `fields_of` calls
the table's readers and returns their values by field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from msgspec.structs import replace

from natsctl.api.codec import go_quote
from natsctl.api.units import format_duration, parse_duration
from natsctl.server.conf.syntax import ConfBlock, ConfItem
from natsctl.server.options import ServerOptions

MAX_SECONDS: Final = (1 << 63) // 1_000_000_000
"""The longest duration: 292 years."""

_ADDRESS: Final = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([^:]*)\Z")
_PORT: Final = re.compile(r"[-+]?[0-9]{1,18}\Z")
_PERCENTAGE: Final = re.compile(r"[+-]?[0-9]{1,9}\Z")
_GO_DURATION: Final = re.compile(r"[-+]?(?:0|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+\Z")


def text_of(item: ConfItem) -> str:
    """Return a text; numbers must be in quotes."""
    if not isinstance(item.value, str):
        raise item.fault(f"expected a text, not {shown(item)}")
    return item.value


def number_of(item: ConfItem) -> int:
    if isinstance(item.value, bool) or not isinstance(item.value, int):
        raise item.fault(f"expected a number, not {shown(item)}")
    return item.value


def size_of(item: ConfItem) -> int:
    """Return a number of bytes; in quotes it must end in one of K, M, G and T."""
    if not isinstance(item.value, str):
        return number_of(item)
    if not item.value:
        return 0
    number, power = item.value[:-1], "KMGT".find(item.value[-1:])
    if not _PORT.match(number) or power < 0:
        raise item.fault(f"expected a size such as 64M, not {item.value!r}")
    return int(number) << 10 * (power + 1)


def flag_of(item: ConfItem) -> bool:
    if not isinstance(item.value, bool):
        raise item.fault(f"expected true or false, not {shown(item)}")
    return item.value


def block_of(item: ConfItem) -> ConfBlock:
    if not isinstance(item.value, dict):
        raise item.fault(f"expected a block in braces, not {shown(item)}")
    return item.value


def items_of(item: ConfItem) -> list[ConfItem]:
    return item.value if isinstance(item.value, list) else [item]


def path_of(item: ConfItem) -> Path:
    return Path(text_of(item))


def port_of(item: ConfItem) -> int:
    """Return a port; -1 is any free one."""
    port = number_of(item)
    if not -1 <= port <= 65535:
        raise item.fault(f"invalid port {port}")
    return port


def address_of(item: ConfItem, host: str) -> tuple[str, int]:
    """Return host and port of `4222`, `host:4222`, `[::1]:4222` or `:4222`; `host` is the default."""
    if isinstance(item.value, int) and not isinstance(item.value, bool):
        return host, port_of(item)
    if not isinstance(item.value, str):
        raise item.fault(f"expected port or host:port, got {shown(item)}")
    match = _ADDRESS.match(item.value)
    if match is None:
        raise item.fault(f'could not parse address string "{item.value}"')
    if not _PORT.match(match[3]):
        raise item.fault(f'could not parse port "{match[3]}"')
    return match[1] or match[2] or host, port_of(item._replace(value=int(match[3])))


def seconds_of(item: ConfItem) -> float:
    """Return seconds of a duration; a bare number counts them."""
    if isinstance(item.value, (int, float)) and not isinstance(item.value, bool):
        if not abs(item.value) <= MAX_SECONDS:
            raise item.fault(f"{item.value} seconds are longer than a duration can be")
        return float(item.value)
    return duration_text_of(item, "duration")


def duration_text_of(item: ConfItem, name: str) -> float:
    """Return seconds of a duration with its unit, such as 10s or 1m30s."""
    text = text_of(item)
    try:
        if not _GO_DURATION.match(text):
            raise ValueError
        return parse_duration(text) / 1e9
    except ValueError:
        raise item.fault(f'error parsing {name}: time: invalid duration "{text}"') from None


def duration_of(item: ConfItem) -> int:
    """Return nanoseconds of a duration; a bare number counts seconds."""
    return round(seconds_of(item) * 1e9)


def write_timeout_of(item: ConfItem) -> str:
    """Return what becomes of a connection that has missed its write deadline, "" for the default."""
    word = text_of(item)
    if word not in ("default", "close", "retry"):
        raise item.fault("write_timeout must be 'default', 'close' or 'retry'")
    return "" if word == "default" else word


def format_seconds(seconds: float) -> str:
    return format_duration(round(seconds * 1e9))


def shown(item: ConfItem) -> str:
    """Return how an error names a value; only numbers and flags are repeated, a text could be a secret."""
    match item.value:
        case bool() as flag:
            return str(flag).lower()
        case int() | float() as number:
            return str(number)
        case str():
            return "a text"
        case list():
            return "a list"
        case dict():
            return "a block"
    return "a date"


T = TypeVar("T")
OptionSetter: TypeAlias = Callable[[ServerOptions, ConfItem], ServerOptions]
"""Returns options with the value of one item."""
Reader: TypeAlias = tuple[str, Callable[[ConfItem], Any]]
"""The field of options, and the function that reads its value; without a field, one that returns several by name."""


def keyed(*rows: tuple[str, T]) -> dict[str, T]:
    """Return a table by key; a row begins with all spellings of its key."""
    return {key: value for spellings, value in rows for key in spellings.split()}


def entries(
    item: ConfItem, known: Mapping[str, T], expected: str = "", unknown: str = "unknown field {}"
) -> Iterator[tuple[T, ConfItem]]:
    """Yield the table's entry for each key of a block, and the key's value.

    A key that is not in the table is a fault unless it is a variable. `expected` and `unknown` are the texts of faults;
    {} is replaced by a value that is not a block, or by the key.
    """
    if not isinstance(item.value, dict):
        raise item.fault((expected or "expected a block in braces, not {}").format(shown(item)))
    for key, value in item.value.items():
        if (found := known.get(key.lower())) is not None:
            yield found, value
        elif key not in item.value.variables:
            raise value.fault(unknown.format(go_quote(key)))


def fields_of(
    item: ConfItem, readers: Mapping[str, Reader], expected: str = "", unknown: str = "unknown field {}"
) -> dict[str, Any]:
    """Return the values of a block by field; the texts are as for `entries`."""
    fields: dict[str, Any] = {}
    for (field, read), value in entries(item, readers, expected, unknown):
        fields.update({field: read(value)} if field else read(value))
    return fields


def set_option(name: str, read: Callable[[ConfItem], Any]) -> OptionSetter:
    return lambda options, item: replace(options, **{name: read(item)})


def address_fields(item: ConfItem) -> dict[str, Any]:
    """Return the port of `listen`, and the host if it has one."""
    host, port = address_of(item, "")
    return {"host": host, "port": port} if host else {"port": port}


def percentage_of(item: ConfItem, malformed: str, mistyped: str) -> int:
    """Return a whole number, or the one before a percent sign.

    `malformed` is the fault of a text ({0} without its percent sign, {1} as it is), `mistyped` of another value ({}).
    """
    value = item.value
    if isinstance(value, str):
        text = value.removesuffix("%")
        if not _PERCENTAGE.match(text):
            raise item.fault(malformed.format(go_quote(text), go_quote(value)))
        return int(text)
    if isinstance(value, bool) or not isinstance(value, int):
        raise item.fault(mistyped.format(shown(item)))
    return value


def list_of(item: ConfItem, fault: str) -> list[ConfItem]:
    """Return the items of an array; `fault` is the text for anything else, {} the value."""
    if not isinstance(item.value, list):
        raise item.fault(fault.format(shown(item)))
    return item.value
