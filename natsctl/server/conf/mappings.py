"""Subject mappings in nats.conf: of an account, and of the global one at the top level."""

from __future__ import annotations

import random
import re
from typing import Final

from msgspec.structs import replace

from natsctl.api.mapping_functions import TransformError
from natsctl.api.subjects import is_valid_subject
from natsctl.api.syntax import go_quote
from natsctl.broker.account import GLOBAL_ACCOUNT
from natsctl.broker.exchange.account_config import AccountConfig, Destination, SubjectMap
from natsctl.broker.exchange.mappings import compile_mapping
from natsctl.server.conf.syntax import Item
from natsctl.server.conf.values import block_of, shown, text_of
from natsctl.server.options import ServerOptions

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,9}\Z")


def mappings_block(options: ServerOptions, item: Item) -> ServerOptions:
    """Return `options` with the mappings of the global account; raises ConfError."""
    before = next((one for one in options.accounts if one.name == GLOBAL_ACCOUNT), AccountConfig(GLOBAL_ACCOUNT))
    others = tuple(one for one in options.accounts if one.name != GLOBAL_ACCOUNT)
    return replace(options, accounts=(*others, replace(before, mappings=mappings_of(item))))


def mappings_of(item: Item) -> tuple[SubjectMap, ...]:
    """Return the mappings that a block describes; raises ConfError."""
    block = block_of(item)
    return tuple(_mapping(source, value) for source, value in block.items() if source not in block.variables)


def _mapping(source: str, item: Item) -> SubjectMap:
    if not is_valid_subject(source):
        raise item.fault(f"Subject {go_quote(source)} is not a valid subject")
    if isinstance(item.value, str):
        mapping, what = SubjectMap(source, (Destination(item.value),)), f"{go_quote(source)} to {go_quote(item.value)}"
    else:
        entries = item.value if isinstance(item.value, list) else [item]
        found = [_destination(entry) for entry in entries]
        # One node is in no cluster, so that what is meant for a named one is checked and left out.
        mapping, what = SubjectMap(source, tuple(to for to, cluster in found if not cluster)), go_quote(source)
    try:
        compile_mapping(mapping, random.Random())
    except TransformError as bad:
        raise item.fault(f"Error adding mapping for {what} : {bad}") from None
    return mapping


def _destination(item: Item) -> tuple[Destination, str]:
    """Return one destination, and the cluster that it is for."""
    if not isinstance(item.value, dict):
        raise item.fault("Expected an entry for the mapping destination")
    subject, cluster, weight = "", "", -1
    for key, value in item.value.items():
        match key.lower():
            case "dest" | "destination":
                subject = text_of(value)
            case "weight":
                weight = _weight(value)
            case "cluster":
                cluster = text_of(value)
            case _:
                raise value.fault(f"Unknown field {go_quote(key)} for mapping destination")
    if weight < 0:
        raise item.fault(f"Missing weight for mapping destination {go_quote(subject)}")
    return Destination(subject, weight), cluster


def _weight(item: Item) -> int:
    value = item.value
    if isinstance(value, str):
        text = value.removesuffix("%")
        if not _WHOLE.match(text):
            raise item.fault(f"Invalid weight {go_quote(text)} for mapping destination")
        value = int(text)
    if isinstance(value, bool) or not isinstance(value, int):
        raise item.fault(f"Unknown entry type for weight of {shown(item)}")
    if not 0 <= value <= 100:
        raise item.fault(f"Invalid weight {value} for mapping destination")
    return value
