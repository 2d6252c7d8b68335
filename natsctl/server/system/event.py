"""The beginning of every event of the system account: its type, an id, the time, and the server that tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from natsctl.api.times import format_time
from natsctl.broker.info import server_info

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker
    from natsctl.broker.options import Rng

TYPE_PREFIX: Final = "io.nats.server.advisory.v1."
ID_LENGTH: Final = 22
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def event_id(rng: Rng) -> str:
    """Return a random id of base62 digits."""
    number, digits = rng.getrandbits(136), []
    for _ in range(ID_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(digits)


def event_head(broker: Broker, kind: str) -> dict[str, Any]:
    """Return the first keys of a new event of one type, in their order."""
    return {
        "type": TYPE_PREFIX + kind,
        "id": event_id(broker.rng),
        "timestamp": format_time(broker.clock.now_ns()),
        "server": server_info(broker),
    }
