"""Which changes must come before which: the edges of a plan, and the order that follows from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from natsctl.api.subjects import overlaps
from natsctl.plan.asset import AssetKey
from natsctl.plan.change import Action, Change
from natsctl.plan.order import ordered
from natsctl.plan.world import World


def with_needs(changes: Mapping[AssetKey, Change], world: World) -> list[Change]:
    """The changes with what each needs, in an order in which they can be done; those that can not are refused."""
    must: dict[AssetKey, set[AssetKey]] = defaultdict(set)
    may: dict[AssetKey, set[AssetKey]] = defaultdict(set)
    for key, change in changes.items():
        if key.consumer:
            must[key].add(key.origin)
        elif change.action is Action.DELETE:
            for origin in origins(change.before or {}):
                may[AssetKey(origin)].add(key)
        else:
            may[key].update(AssetKey(origin) for origin in origins(change.config or {}))
    for giver, taker in _handed_over(changes):
        must[taker].add(giver)
    needed, circle = ordered(list(changes), must, may)
    for key, first in needed.items():
        changes[key].needs = [needed_name(other) for other in needed if other in first]
    for key in circle:
        refuse_circle(changes[key])
    return [changes[key] for key in needed]


def needed_name(key: AssetKey) -> str:
    """What `needs` calls an asset."""
    return f"{key.stream} > {key.consumer}" if key.consumer else key.stream


def refuse_circle(change: Change) -> None:
    """Refuse a change that waits for itself."""
    if not change.refused:
        change.refused = (
            f"it can not be done in one go: it and {', '.join(change.needs)} wait for each other's subjects"
        )
        change.hint = "apply twice: first with the subjects left out on one side"


def origins(config: Mapping[str, Any]) -> Iterator[str]:
    """The streams of the same account that a stream mirrors or sources from."""
    for source in [config.get("mirror") or {}, *(config.get("sources") or ())]:
        if source.get("name") and not source.get("external"):
            yield str(source["name"])


def _handed_over(changes: Mapping[AssetKey, Change]) -> Iterator[tuple[AssetKey, AssetKey]]:
    """Pairs of streams of which the second takes subjects that the first gives up."""
    given = [(key, subject) for key, change in changes.items() for subject in _given(change)]
    for taker, change in changes.items():
        for subject in _taken(change) if given else ():
            yield from ((giver, taker) for giver, old in given if giver != taker and overlaps(old, subject))


def _given(change: Change) -> set[str]:
    """Subjects that a stream has and will not have."""
    if change.consumer or not change.before:
        return set()
    return _subjects(change.before) - (_subjects(change.config) if change.config else set())


def _taken(change: Change) -> set[str]:
    """Subjects that a stream does not have and will have."""
    if change.consumer or not change.config:
        return set()
    return _subjects(change.config) - (_subjects(change.before) if change.before else set())


def _subjects(config: Mapping[str, Any]) -> set[str]:
    if config.get("subjects"):
        return set(config["subjects"])
    return set() if config.get("mirror") or config.get("sources") else {str(config.get("name", ""))} - {""}
