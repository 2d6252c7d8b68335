"""What a server makes of a stream configuration that leaves things out, so that only true changes are told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from natsctl.api.units import MINUTE

WINDOW_NS: Final = 2 * MINUTE
LIMITS: Final = ("max_consumers", "max_msgs", "max_bytes", "max_msgs_per_subject", "max_msg_size")
"""Fields of which 0 and absent mean no limit, which servers write as -1."""

DEFAULTS: Final[dict[str, Any]] = {
    "retention": "limits",
    "discard": "old",
    "storage": "file",
    "compression": "none",
    "num_replicas": 1,
    "max_age": 0,
}


def settled(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What `wanted` makes of the configuration `live`: defaults for what was taken away, all else as it is."""
    full = normalised(wanted)
    for name in live.keys() | full.keys():
        if wanted.get(name) == live.get(name):
            full.pop(name, None)
            full |= {name: live[name]} if name in live else {}
    order = [*live, *(name for name in full if name not in live)]
    return {name: full[name] for name in order if name in full}


def normalised(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as a server keeps it; what it has already and what is unknown here stays."""
    kept = {**config}
    for name, value in DEFAULTS.items():
        kept[name] = kept.get(name) or value
    for name in LIMITS:
        kept[name] = kept.get(name) or -1
    if not kept.get("duplicate_window") and not kept.get("mirror") and not kept.get("sources"):
        age_ns = int(kept["max_age"])
        kept["duplicate_window"] = min(WINDOW_NS, age_ns) if age_ns > 0 else WINDOW_NS
    return kept
