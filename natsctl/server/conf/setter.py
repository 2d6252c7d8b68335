"""What a key of nats.conf does: it makes options out of options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec.structs import replace

from natsctl.server.conf.syntax import Item
from natsctl.server.options import ServerOptions

Setter: TypeAlias = Callable[[ServerOptions, Item], ServerOptions]


def set_option(name: str, read: Callable[[Item], Any]) -> Setter:
    """Return the setter of the option `name`, whose value `read` makes."""
    return lambda options, item: replace(options, **{name: read(item)})
