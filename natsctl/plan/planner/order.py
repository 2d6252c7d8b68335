"""In which order changes can be done: what must come first, and what would better."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def ordered(
    nodes: Sequence[Node], must: Mapping[Node, AbstractSet[Node]], may: Mapping[Node, AbstractSet[Node]]
) -> tuple[dict[Node, set[Node]], list[Node]]:
    """Return the dependencies of each node, in an order that satisfies them, and the nodes that no order satisfies.

    Without constraints the given order stays. `must` always holds; of `may`, edges that would close a circle are
    dropped. The nodes of a circle of `must`, and those behind it, come last.
    """
    known = set(nodes)
    hard = {node: set(must.get(node, ())) & known - {node} for node in nodes}
    soft = {node: set(may.get(node, ())) & known - {node} - hard[node] for node in nodes}
    place = {node: at for at, node in enumerate(nodes)}
    dependents: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node in nodes:
        for first in hard[node] | soft[node]:
            dependents[first].append(node)
    waits = {node: len(hard[node]) + len(soft[node]) for node in nodes}
    ready = [at for at, node in enumerate(nodes) if not waits[node]]
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
