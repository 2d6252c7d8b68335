"""Streams, consumers and buckets as documents write them, made configurations of the wire."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.documents import TOLD, DocumentFault, Untyped, is_info, read_document
from natsctl.api.model import Model
from natsctl.api.shapes import shape_of
from natsctl.api.stream import StreamConfig
from natsctl.plan.asset import AssetKey, Kind
from natsctl.plan.documents.extra import EXTRA, merged, unknown_of
from natsctl.plan.documents.found import Found
from natsctl.plan.documents.items import items
from natsctl.plan.documents.lined import Mapped, Spot
from natsctl.plan.documents.mentions import IGNORE, Described, ignored_fields, nulls_of
from natsctl.plan.labels import is_protected, stripped, without_server_made
from natsctl.plan.wanted import Wanted

Read: TypeAlias = "Callable[[Spot, Kind, Found], None]"
"""Reads the asset at a spot."""

PROTECT: Final = "protect"
"""Neither removed nor replaced."""
CREATE_ONLY: Final = "create_only"
"""The asset is created if it does not exist, and left unchanged if it does."""
SWITCHES: Final = (PROTECT, CREATE_ONLY, IGNORE)
_STREAM_KEYS: Final = ("consumers", EXTRA, *SWITCHES)
_CONSUMER_KEYS: Final = ("stream", "stream_name", EXTRA, *SWITCHES)


def read_stream(spot: Spot, kind: Kind, found: Found) -> None:
    """Add a stream, and the consumers below it."""
    if not _is_object(spot, found):
        return
    where = config_spot(spot, _STREAM_KEYS)
    config, good = _config(spot, where, StreamConfig, found)
    name = config.get("name")
    if not name:
        _unnamed(spot, "a stream needs a name", found)
        return
    keep(AssetKey(name), kind, Described(config, nulls_of(where, StreamConfig)), spot, where, found, good)
    for item in items(spot.at("consumers"), "name", found):
        read_consumer(item, Kind.CONSUMER, found, name)


def read_consumer(spot: Spot, kind: Kind, found: Found, stream: str = "") -> None:
    """Add a consumer; `stream` is the stream above it in the document."""
    if not _is_object(spot, found):
        return
    stream = _stream_of(spot, stream, found)
    where = config_spot(spot, _CONSUMER_KEYS)
    config, good = _config(spot, where, ConsumerConfig, found)
    said = is_info(spot.value)
    # Servers before 2.9 give the name of a consumer that is not durable beside its configuration only.
    name = config.get("durable_name") or config.get("name") or (said and _text(spot.value.get("name")))
    if not name:
        _unnamed(spot, "a consumer needs a name or durable_name", found)
    if not name or not stream:
        return
    if config.get("name", name) != name:
        found.fault(where.at("name"), f"expected {name}, which is its durable_name, got {config['name']}")
    if not said and not config.get("inactive_threshold"):
        config.setdefault("durable_name", name)
    if said:
        config.pop("pause_until", None)  # an action of a client, not a field of a document
    nulls = nulls_of(where, ConsumerConfig) - config.keys()
    keep(AssetKey(stream, name), kind, Described(config, nulls), spot, where, found, good)


def keep(key: AssetKey, kind: Kind, said: Described, spot: Spot, where: Spot, found: Found, good: bool) -> None:
    """Add an asset without the metadata that servers and plans write.

    `spot` is its document, `where` its configuration in that; `good`: no part of it is missing because of a fault.
    """
    config = said.config
    protect = _switched(spot, PROTECT, is_protected(config), found)
    create_only = _switched(spot, CREATE_ONLY, False, found)
    if "metadata" in config:
        config = without_server_made(stripped(config))
    at_creation = said.at_creation | ignored_fields(key, kind, spot.at(IGNORE), found)
    asset = Wanted(key, kind, config, where.place, protect, create_only, said.nulls, at_creation)
    found.add(asset, where, good)


def _stream_of(spot: Spot, above: str, found: Found) -> str:
    said = [spot.at(key) for key in ("stream", "stream_name") if spot.value.get(key) is not None]
    for one in said:
        if not isinstance(one.value, str) or not one.value:
            if one.value is not TOLD:
                found.fault(one, "expected the name of a stream")
            return ""
        if above and one.value != above:
            found.fault(one, f"expected {above}, as it stands below that stream, got {one.value}")
    if not above and not said:
        found.fault(spot, "a consumer needs its stream: add stream: NAME, or put it below the stream's consumers:")
    return above or (str(said[0].value) if said else "")


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str) else ""


def _is_object(spot: Spot, found: Found) -> bool:
    if isinstance(spot.value, Mapped):
        return True
    found.fault(spot, "expected an object")
    return False


def _unnamed(spot: Spot, reason: str, found: Found) -> None:
    """Report a missing name, unless the value there was a fault itself."""
    config = config_spot(spot, ())
    if all(config.value.get(key) in (None, "") for key in ("name", "durable_name")):
        found.fault(config, reason)


def config_spot(spot: Spot, own_keys: tuple[str, ...]) -> Spot:
    """Return the spot of the configuration: below `config` in a server's answer, else the document itself."""
    if isinstance(spot.value.get("config"), Mapped):
        return spot.at("config")
    return spot.holding(spot.value.without(*own_keys)) if own_keys else spot


def _config(spot: Spot, where: Spot, model: type[Model], found: Found) -> tuple[dict[str, Any], bool]:
    """Return the wire's values that a document gives, and whether none is missing because of a fault."""
    values, faults = read_document(where.value, model, lenient=is_info(spot.value))
    good = tell(where, faults, found)
    said: Any = {} if spot.value.get(EXTRA) is None else spot.value[EXTRA]
    extra = unknown_of(where.value, shape_of(model)) if is_info(spot.value) else said
    if not isinstance(extra, dict):
        found.fault(spot.at(EXTRA), "expected an object")
        return values, False
    return merged(values, extra), good


def tell(where: Spot, faults: Sequence[DocumentFault], found: Found) -> bool:
    """Report the faults below a spot, and return whether all known fields are there nevertheless."""
    for fault in faults:
        if fault.reason:
            spot = where.at(*fault.path)
            unquoted = fault.reason.startswith("expected a text") and isinstance(spot.value, int | float)
            found.fault(spot, f"{fault.reason}: put it in quotes" if unquoted else fault.reason)
    return not any(fault.lost for fault in faults)


def _switched(spot: Spot, key: str, otherwise: bool, found: Found) -> bool:
    """Return whether a document sets a switch of an asset."""
    said = spot.at(key)
    if said.value is None:
        return otherwise
    value = said.value.meant if isinstance(said.value, Untyped) else said.value
    if not isinstance(value, bool):
        found.fault(said, "expected true or false")
        return False
    return value
