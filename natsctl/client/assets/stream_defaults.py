"""Defaults of streams: those of natsctl for a new one, and those that a server fills in by itself.

A field that nobody mentioned is left to the server, which fills in `DEFAULTS` and `LIMITS`; `CREATED` are the fields
for which natsctl asks otherwise when it creates a stream, whether from flags, a file, a document or as a bucket.
"""

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
CREATED: Final[dict[str, Any]] = {"allow_direct": True}
"""Fields of a new stream for which natsctl, as nats does, asks for another value than the server's default."""


def new_stream(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with which a stream is created: `config` and the defaults for what it leaves out.

    A field given as None counts as left out.
    """
    given = {name: value for name, value in config.items() if value is not None}
    return given | {name: value for name, value in CREATED.items() if name not in given}


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
        kept["duplicate_window"] = window_of(int(kept["max_age"]))
    return kept


def window_of(max_age_ns: int) -> int:
    """Return how many ns message ids are remembered unless asked otherwise: never longer than messages live."""
    return min(WINDOW_NS, max_age_ns) if max_age_ns > 0 else WINDOW_NS
