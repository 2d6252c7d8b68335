"""Typed values of nats.conf: each function returns the value of an item, or raises ConfError.

A `OptionSetter` makes options out of options and one item.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from natsctl.api.units import format_duration, parse_duration
from natsctl.server.conf.syntax import Block, Item
from natsctl.server.options import ServerOptions

MAX_SECONDS: Final = (1 << 63) // 1_000_000_000
"""The longest duration: 292 years."""

_ADDRESS: Final = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([^:]*)\Z")
_PORT: Final = re.compile(r"[-+]?[0-9]{1,18}\Z")
_GO_DURATION: Final = re.compile(r"[-+]?(?:0|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+\Z")


def text_of(item: Item) -> str:
    """Return a text; numbers are none unless they stand in quotes."""
    if not isinstance(item.value, str):
        raise item.fault(f"expected a text, not {shown(item)}")
    return item.value


def number_of(item: Item) -> int:
    if isinstance(item.value, bool) or not isinstance(item.value, int):
        raise item.fault(f"expected a number, not {shown(item)}")
    return item.value


def size_of(item: Item) -> int:
    """Return a number of bytes; in quotes it ends in one letter of K, M, G and T, which bare words need not."""
    if not isinstance(item.value, str):
        return number_of(item)
    if not item.value:
        return 0
    number, power = item.value[:-1], "KMGT".find(item.value[-1:])
    if not _PORT.match(number) or power < 0:
        raise item.fault(f"expected a size such as 64M, not {item.value!r}")
    return int(number) << 10 * (power + 1)


def flag_of(item: Item) -> bool:
    if not isinstance(item.value, bool):
        raise item.fault(f"expected true or false, not {shown(item)}")
    return item.value


def block_of(item: Item) -> Block:
    if not isinstance(item.value, dict):
        raise item.fault(f"expected a block in braces, not {shown(item)}")
    return item.value


def items_of(item: Item) -> list[Item]:
    """Return the items of a list; a single value is a list of one."""
    return item.value if isinstance(item.value, list) else [item]


def path_of(item: Item) -> Path:
    return Path(text_of(item))


def port_of(item: Item) -> int:
    """Return a port; -1 is any free one."""
    port = number_of(item)
    if not -1 <= port <= 65535:
        raise item.fault(f"invalid port {port}")
    return port


def address_of(item: Item, host: str) -> tuple[str, int]:
    """Return host and port of `4222`, `host:4222`, `[::1]:4222` or `:4222`; `host` where none is given."""
    if isinstance(item.value, int) and not isinstance(item.value, bool):
        return host, port_of(item)
    if not isinstance(item.value, str):
        raise item.fault(f"expected port or host:port, got {shown(item)}")
    found = _ADDRESS.match(item.value)
    if found is None:
        raise item.fault(f'could not parse address string "{item.value}"')
    if not _PORT.match(found[3]):
        raise item.fault(f'could not parse port "{found[3]}"')
    return found[1] or found[2] or host, port_of(item._replace(value=int(found[3])))


def seconds_of(item: Item) -> float:
    """Return seconds of a duration; a bare number counts them."""
    if isinstance(item.value, (int, float)) and not isinstance(item.value, bool):
        if not abs(item.value) <= MAX_SECONDS:
            raise item.fault(f"{item.value} seconds are longer than a duration can be")
        return float(item.value)
    return duration_text_of(item, "duration")


def duration_text_of(item: Item, name: str) -> float:
    """Return seconds of a duration with its unit, such as 10s or 1m30s."""
    text = text_of(item)
    try:
        if not _GO_DURATION.match(text):
            raise ValueError
        return parse_duration(text) / 1e9
    except ValueError:
        raise item.fault(f'error parsing {name}: time: invalid duration "{text}"') from None


def duration_of(item: Item) -> int:
    """Return nanoseconds of a duration; a bare number counts seconds."""
    return round(seconds_of(item) * 1e9)


def write_timeout_of(item: Item) -> str:
    """Return what becomes of a connection that has missed its write deadline, "" for the default."""
    word = text_of(item)
    if word not in ("default", "close", "retry"):
        raise item.fault("write_timeout must be 'default', 'close' or 'retry'")
    return "" if word == "default" else word


def format_seconds(seconds: float) -> str:
    return format_duration(round(seconds * 1e9))


def shown(item: Item) -> str:
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


OptionSetter: TypeAlias = Callable[[ServerOptions, Item], ServerOptions]


def set_option(name: str, read: Callable[[Item], Any]) -> OptionSetter:
    return lambda options, item: replace(options, **{name: read(item)})
