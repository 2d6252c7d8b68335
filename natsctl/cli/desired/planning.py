"""What a plan may do, by flags, and how it is made of documents and the account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from natsctl.api.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from natsctl.cli.session import Session
    from natsctl.client.manager import Manager
    from natsctl.plan.change import Plan
    from natsctl.plan.planner.planner import PlanOptions
    from natsctl.plan.wanted import DocumentSet

T = TypeVar("T")

Prune = Annotated[
    bool,
    typer.Option(
        "--prune", help="remove what this owner's documents created and no longer describe", show_default=False
    ),
]
AllowReplace = Annotated[
    bool,
    typer.Option("--allow-replace", help="replace what cannot be changed in place", show_default=False),
]
KeepMessages = Annotated[
    bool,
    typer.Option("--keep-messages", help="keep the messages and consumers of replaced streams", show_default=False),
]
Adopt = Annotated[
    bool, typer.Option("--adopt", help="take over what belongs to another owner or to none", show_default=False)
]


MaxRemovals = Annotated[
    int | None,
    typer.Option(
        "--max-removals",
        metavar="N",
        min=0,
        help="do nothing if more assets than that would be removed [10, or a tenth of the account's]",
        show_default=False,
    ),
]


def planned(session: Session, wanted: DocumentSet, options: PlanOptions, *, destroy: bool = False) -> Plan:
    """The plan that makes the account be as documents say, or that removes what they describe."""
    from datetime import UTC, datetime

    from natsctl.api.units import plural
    from natsctl.plan.planner.account_plan import destruction_for, plan_for

    if options.prune:
        check_owned(wanted)
    make = destruction_for if destroy else plan_for
    plan = session.run(lambda manager: patiently(manager, lambda one: make(one, wanted, options)))
    if plan.max_removals is not None and plan.removals > plan.max_removals:
        most = plan.removals
        plan.notes.append(
            f"it removes {plural(most, 'asset')}, more than {plan.max_removals:,}: --max-removals {most} allows it"
        )
    if not destroy:
        plan.notes += session.run(lambda manager: patiently(manager, _unfinished))
    plan.created = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return plan


async def patiently(manager: Manager, work: Callable[[Manager], Awaitable[T]]) -> T:
    """Return the result of reading that is begun again where a server of several has died."""
    from natsctl.client.backup.attempts import Lifeline

    lifeline = Lifeline(manager)
    return await lifeline.patiently(lambda: work(lifeline.manager))


def check_owned(wanted: DocumentSet) -> None:
    """Raise UsageError where nobody has said whose assets may be pruned."""
    if not wanted.is_owned:
        raise UsageError(
            "--prune needs an owner: the documents name none",
            hint="give --owner NAME, or owner: in a document; only what that owner's documents created is removed",
        )


async def _unfinished(manager: Manager) -> list[str]:
    """What an apply would begin with: replacements of streams that were interrupted, or go on."""
    from natsctl.plan.apply.holding import PREFIX, names_of

    names = [name.removeprefix(PREFIX) for name in await names_of(manager)]
    return [f"the replacement of {name} is not finished: apply does that first" for name in names]


def show_plan(plan: Plan) -> None:
    """Show a person what would happen, on stderr."""
    from natsctl.cli import output, screen
    from natsctl.cli.render.plans import render_plan

    output.note(render_plan(plan, screen.width()))
