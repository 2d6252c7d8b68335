"""Streams of an account that have what documents want others to take: the server would refuse that."""

from __future__ import annotations

from collections.abc import Mapping

from natsctl.plan.asset import AssetKey
from natsctl.plan.change import Action, Change
from natsctl.plan.documents.subject_tree import SubjectTree
from natsctl.plan.planner.needs import given_up, taken
from natsctl.plan.world import World


def subjects_taken(changes: Mapping[AssetKey, Change]) -> set[str]:
    """Return all subjects that streams are about to take."""
    return {subject for key, change in changes.items() if not key.consumer for subject in taken(change)}


def refuse_clashes(changes: Mapping[AssetKey, Change], world: World) -> None:
    """Refuse changes by which a stream would take subjects that another one keeps."""
    if not subjects_taken(changes):
        return
    kept: SubjectTree[str] = SubjectTree()
    for key, live in world.assets.items():
        change = changes.get(key)
        if key.consumer or (change is not None and change.action in (Action.DELETE, Action.REPLACE)):
            continue
        gone = given_up(change) if change is not None else set()
        for subject in live.config.get("subjects") or ():
            if subject not in gone:
                kept.add(subject, key.stream)
    for key, change in changes.items():
        if key.consumer or change.refused:
            continue
        for subject in sorted(taken(change)):
            others = sorted({name for name in kept.overlapping(subject) if name != key.stream})
            if others:
                change.refused = f"subjects overlap with an existing stream: {subject} is taken by {', '.join(others)}"
                change.hint = "leave it out, or describe both streams so that only one has it"
                break
