"""Dependencies between changes, the order that follows, and subjects that clash."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeVar

from natsctl.api.subject_index import SubjectIndex
from natsctl.desired.assets import AssetKey
from natsctl.desired.documents.rules import pattern_of
from natsctl.desired.live import LiveState
from natsctl.desired.plan import Action, Change

Node = TypeVar("Node", bound=Hashable)


def ordered(
    nodes: Sequence[Node], must: Mapping[Node, AbstractSet[Node]], may: Mapping[Node, AbstractSet[Node]]
) -> tuple[dict[Node, set[Node]], list[Node]]:
    """Return the dependencies of each node, in an order that satisfies them, and the nodes that no order satisfies.

    Without constraints the given order stays. `must` always holds; of `may`, edges that would close a circle are
    dropped. Nodes in a cycle of `must` edges, and nodes that depend on them, come last.
    """
    known = set(nodes)
    hard = {node: set(must.get(node, ())) & known - {node} for node in nodes}
    soft = {node: set(may.get(node, ())) & known - {node} - hard[node] for node in nodes}
    place = {node: index for index, node in enumerate(nodes)}
    dependents: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node in nodes:
        for first in hard[node] | soft[node]:
            dependents[first].append(node)
    waits = {node: len(hard[node]) + len(soft[node]) for node in nodes}
    ready = [index for index, node in enumerate(nodes) if not waits[node]]
    done: dict[Node, set[Node]] = {}
    while len(done) < len(nodes):
        if not ready and not (ready := _loosened(nodes, done, hard, soft, waits, place)):
            break
        node = nodes[heapq.heappop(ready)]
        done[node] = hard[node] | soft[node]
        for dependent in dependents[node]:
            if dependent not in done and node in hard[dependent] | soft[dependent]:
                waits[dependent] -= 1
                if not waits[dependent]:
                    heapq.heappush(ready, place[dependent])
    left = [node for node in nodes if node not in done]
    return done | {node: hard[node] for node in left}, left


def _loosened(
    nodes: Sequence[Node],
    done: Mapping[Node, AbstractSet[Node]],
    hard: Mapping[Node, AbstractSet[Node]],
    soft: Mapping[Node, set[Node]],
    waits: dict[Node, int],
    place: Mapping[Node, int],
) -> list[int]:
    """Release the first node that only soft dependencies hold back; return its index."""
    for node in nodes:
        if node not in done and not hard[node] - done.keys():
            soft[node] &= done.keys()
            waits[node] = 0
            return [place[node]]
    return []


LIMITED: Final = ("max_ack_pending", "inactive_threshold")
"""Fields of consumers that their stream may limit."""


def with_needs(changes: Mapping[AssetKey, Change], live_state: LiveState) -> list[Change]:
    """Return the changes with their dependencies, in a feasible order; those in a circle are refused."""
    must: dict[AssetKey, set[AssetKey]] = defaultdict(set)
    may: dict[AssetKey, set[AssetKey]] = defaultdict(set)
    leaving = _leaving(changes, live_state)
    for key, change in changes.items():
        if change.action is Action.CREATE:
            may[key] |= leaving.get(key.stream if key.consumer else "", set())
        if key.consumer:
            before, after = (key, key.origin) if _must_yield(changes, key) else (key.origin, key)
            must[after].add(before)
        elif change.action is Action.DELETE:
            for origin in origins(change.before or {}):
                may[AssetKey(origin)].add(key)
        else:
            may[key].update(AssetKey(origin) for origin in origins(change.config or {}))
    for group in _rivals(changes, live_state):
        for holder, claimant in _handed_over(group):
            must[claimant].add(holder)
    needed, circle = ordered(list(changes), must, may)
    for key, first in needed.items():
        changes[key].needs = [needed_name(other) for other in needed if other in first]
    for key in circle:
        refuse_circle(changes[key])
    return [changes[key] for key in needed]


def needed_name(key: AssetKey) -> str:
    return f"{key.stream} > {key.consumer}" if key.consumer else key.stream


def refuse_circle(change: Change) -> None:
    if not change.refused:
        change.refused = f"it cannot be done in one go: it and {', '.join(change.needs)} wait for each other's subjects"
        change.hint = "apply twice: first with the subjects left out on one side"


def origins(config: Mapping[str, Any]) -> Iterator[str]:
    """Return the streams of the same account that a stream mirrors or sources from."""
    for source in [config.get("mirror") or {}, *(config.get("sources") or ())]:
        if source.get("name") and not source.get("external"):
            yield str(source["name"])


def _must_yield(changes: Mapping[AssetKey, Change], key: AssetKey) -> bool:
    """Return whether the new limits of a consumer's stream are refused until the consumer has changed."""
    stream, change = changes.get(key.origin), changes[key]
    if stream is None or stream.action is not Action.UPDATE or change.before is None:
        return False
    return is_beyond((stream.config or {}).get("consumer_limits") or {}, change.before)


def is_beyond(limits: Mapping[str, Any], consumer: Mapping[str, Any]) -> bool:
    return any(0 < int(most or 0) < int(consumer.get(name) or 0) for name, most in limits.items() if name in LIMITED)


def _leaving(changes: Mapping[AssetKey, Change], live_state: LiveState) -> dict[str, set[AssetKey]]:
    """Return removals that make room: consumers by stream, streams of an account that limits them under ""."""
    found: dict[str, set[AssetKey]] = defaultdict(set)
    limited = int(live_state.limits.get("max_streams") or 0) > 0
    for key, change in changes.items():
        if change.action is Action.DELETE and (key.consumer or limited):
            found[key.stream if key.consumer else ""].add(key)
    return found


def _rivals(changes: Mapping[AssetKey, Change], live_state: LiveState) -> Iterator[dict[AssetKey, Change]]:
    """Return groups of assets that cannot share a subject: streams, and the consumers of one work queue."""
    yield {key: change for key, change in changes.items() if not key.consumer}
    queues: dict[str, dict[AssetKey, Change]] = defaultdict(dict)
    for key, change in changes.items():
        if key.consumer and _is_queue(key.origin, changes, live_state):
            queues[key.stream][key] = change
    yield from queues.values()


def _is_queue(stream: AssetKey, changes: Mapping[AssetKey, Change], live_state: LiveState) -> bool:
    config = (changes[stream].config if stream in changes else None) or {}
    if not config and stream in live_state.assets:
        config = live_state.assets[stream].config
    return config.get("retention") == "workqueue"


def _handed_over(changes: Mapping[AssetKey, Change]) -> Iterator[tuple[AssetKey, AssetKey]]:
    """Return pairs of assets: the second takes over subjects that the first gives up."""
    given: SubjectIndex[AssetKey] = SubjectIndex()
    for key, change in changes.items():
        for subject in given_up(change):
            given.add(pattern_of(subject), key)
    for claimant, change in changes.items():
        for subject in taken(change):
            yield from ((holder, claimant) for holder in given.overlapping(pattern_of(subject)) if holder != claimant)


def given_up(change: Change) -> set[str]:
    before, after = _had(change), change.config
    return set() if not before else _subjects(before, change) - (_subjects(after, change) if after else set())


def taken(change: Change) -> set[str]:
    before, after = _had(change), change.config
    return set() if not after else _subjects(after, change) - (_subjects(before, change) if before else set())


def _had(change: Change) -> Mapping[str, Any] | None:
    """Return the configuration of an asset when its change begins: none for a consumer of a replaced stream."""
    return None if change.action is Action.CREATE else change.before


def _subjects(config: Mapping[str, Any], change: Change) -> set[str]:
    if change.consumer:
        filters = [config.get("filter_subject"), *(config.get("filter_subjects") or ())]
        return {str(subject) for subject in filters if subject} or {">"}
    if config.get("subjects"):
        return set(config["subjects"])
    return set() if config.get("mirror") or config.get("sources") else {change.stream}


def subjects_taken(changes: Mapping[AssetKey, Change]) -> set[str]:
    return {subject for key, change in changes.items() if not key.consumer for subject in taken(change)}


def refuse_clashes(changes: Mapping[AssetKey, Change], live_state: LiveState) -> None:
    if not subjects_taken(changes):
        return
    kept: SubjectIndex[str] = SubjectIndex()
    for key, live in live_state.assets.items():
        change = changes.get(key)
        if key.consumer or (change is not None and change.action in (Action.DELETE, Action.REPLACE)):
            continue
        gone = given_up(change) if change is not None else set()
        for subject in live.config.get("subjects") or ():
            if subject not in gone:
                kept.add(pattern_of(subject), key.stream)
    for key, change in changes.items():
        if key.consumer or change.refused:
            continue
        for subject in sorted(taken(change)):
            others = sorted({name for name in kept.overlapping(pattern_of(subject)) if name != key.stream})
            if others:
                change.refused = f"subjects overlap with an existing stream: {subject} belongs to {', '.join(others)}"
                change.hint = "leave it out, or describe both streams so that only one has it"
                break
