"""Which streams come first: what is mirrored or sourced from, before what copies it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def origins_of(config: Mapping[str, Any]) -> set[str]:
    """The streams of the same account that a stream mirrors or sources."""
    sources = [config.get("mirror") or {}, *(config.get("sources") or ())]
    return {str(one["name"]) for one in sources if one.get("name") and not one.get("external")}


def in_order(configs: Mapping[str, Mapping[str, Any]]) -> tuple[list[list[str]], list[str]]:
    """Groups of streams, each needing only those before it, and the names of those that need each other in a circle.

    The latter are no group: no order is right for them.
    """
    needs = {name: (origins_of(config) & configs.keys()) - {name} for name, config in configs.items()}
    groups: list[list[str]] = []
    done: set[str] = set()
    while ready := sorted(name for name, needed in needs.items() if name not in done and needed <= done):
        groups.append(ready)
        done.update(ready)
    return groups, sorted(configs.keys() - done)
