"""A plan for a set of documents on a live account: reads what it needs, and asks again where a server's caps matter."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from natsctl.api.errors import NotAuthorisedError
from natsctl.plan.planner.caps import doubtful, read_caps
from natsctl.plan.planner.clashes import subjects_taken
from natsctl.plan.planner.needs import origins
from natsctl.plan.planner.planner import DEFAULT, PlanOptions, make_destruction, make_plan
from natsctl.plan.world import REQUESTS_AT_ONCE, read_world

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.plan.change import Plan
    from natsctl.plan.wanted import DocumentSet


async def plan_for(
    manager: Manager, documents: DocumentSet, options: PlanOptions = DEFAULT, *, whole: bool = False
) -> Plan:
    """Return the plan that makes the account match documents.

    With `whole` all of it is read, to find the owner's other assets.
    """
    named = None if whole or options.prune else streams_of(documents)
    world = await read_world(manager, named)
    plan = make_plan(documents, world, options)
    if named is not None and (others := await _rivals(manager, plan) - named):
        world = await read_world(manager, named | others)
        plan = make_plan(documents, world, options)
    if doubts := doubtful(documents, plan):
        caps = await read_caps(manager, doubts, world)
        return make_plan(documents, replace(world, limits={**world.limits, **caps}), options) if caps else plan
    return plan


async def _rivals(manager: Manager, plan: Plan) -> set[str]:
    """Return the streams of the account that have subjects which the plan would have streams take."""
    room = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def ask(subject: str) -> list[str]:
        async with room:
            try:
                return list(await manager.stream_names(subject=subject))
            except NotAuthorisedError:
                return []  # a user who may only change streams of some names learns of an overlap from the server

    wanted = subjects_taken({change.key: change for change in plan.changes})
    return {name for names in await asyncio.gather(*map(ask, sorted(wanted))) for name in names}


async def destruction_for(manager: Manager, documents: DocumentSet, options: PlanOptions = DEFAULT) -> Plan:
    """Return the plan that removes from the account what documents describe."""
    named = None if options.prune else streams_of(documents)
    return make_destruction(documents, await read_world(manager, named), options)


def streams_of(documents: DocumentSet) -> set[str]:
    """Return the streams that documents refer to: described, consumed, mirrored or sourced from."""
    found = {key.stream for key in documents.wanted}
    for one in documents.wanted.values():
        if not one.key.consumer:
            found.update(origins(one.config))
    return found
