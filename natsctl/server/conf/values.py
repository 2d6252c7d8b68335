"""Values of nats.conf as what a key wants: each function returns the value, or raises what is wrong with it."""

from __future__ import annotations

from natsctl.api.units import parse_duration
from natsctl.server.conf.syntax import Block, Item


def text_of(item: Item) -> str:
    """Return a text; numbers are none unless they stand in quotes."""
    if not isinstance(item.value, str):
        raise item.fault(f"expected a text, not {shown(item)}")
    return item.value


def number_of(item: Item) -> int:
    """Return a whole number."""
    if isinstance(item.value, bool) or not isinstance(item.value, int):
        raise item.fault(f"expected a number, not {item.value!r}")
    return item.value


def size_of(item: Item) -> int:
    """Return a number of bytes; in quotes it ends in one letter of K, M, G and T, which bare words need not."""
    if not isinstance(item.value, str):
        return number_of(item)
    number, power = item.value[:-1], "KMGT".find(item.value[-1:])
    if not item.value:
        return 0
    if not number.isdecimal() or power < 0:
        raise item.fault(f"expected a size such as 64M, not {item.value!r}")
    return int(number) << 10 * (power + 1)


def flag_of(item: Item) -> bool:
    """Return true or false."""
    if not isinstance(item.value, bool):
        raise item.fault(f"expected true or false, not {item.value!r}")
    return item.value


def block_of(item: Item) -> Block:
    """Return what stands in braces."""
    if not isinstance(item.value, dict):
        raise item.fault("expected a block in braces")
    return item.value


def items_of(item: Item) -> list[Item]:
    """Return the items of a list; a single value is a list of one."""
    return item.value if isinstance(item.value, list) else [item]


def port_of(item: Item) -> int:
    """Return a port; -1 is any free one."""
    port = number_of(item)
    if not -1 <= port <= 65535:
        raise item.fault(f"invalid port {port}")
    return port


def address_of(item: Item, host: str) -> tuple[str, int]:
    """Return host and port of `4222`, `host:4222` or `:4222`."""
    if isinstance(item.value, int) and not isinstance(item.value, bool):
        return host, port_of(item)
    name, colon, port = text_of(item).rpartition(":")
    if not colon or not port.lstrip("-").isdigit():
        raise item.fault(f"expected host:port, not {item.value!r}")
    return name.strip("[]") or host, port_of(item._replace(value=int(port)))


def seconds_of(item: Item) -> float:
    if isinstance(item.value, (int, float)) and not isinstance(item.value, bool):
        return float(item.value)
    try:
        return parse_duration(text_of(item)) / 1e9
    except ValueError:
        raise item.fault(f"expected seconds or a duration, not {item.value!r}") from None


def duration_of(item: Item) -> int:
    """Return nanoseconds of a duration; a bare number counts seconds."""
    return round(seconds_of(item) * 1e9)


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
