"""Plans and differences between documents and the account: `natsctl plan` and `natsctl diff`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from msgspec import field

from natsctl.api.errors import ExitCode, UsageError
from natsctl.api.model import Model
from natsctl.api.units import plural
from natsctl.cli.desired.sources import AllowEmpty, DocumentFlags
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json
from natsctl.cli.framework.parameters import Option, as_usage_error
from natsctl.cli.framework.session import Session
from natsctl.cli.render.text import safe
from natsctl.client.atomic_file import PRIVATE, atomic_write
from natsctl.desired.assets import AssetKey, DocumentSet
from natsctl.desired.plan import Action, Change, Difference, Plan, encode_plan, saved_document

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from natsctl.client.manager import Manager
    from natsctl.desired.planner import PlanOptions


T = TypeVar("T")

Prune = Annotated[
    bool,
    Option("--prune", help="remove what this owner's documents created and no longer describe"),
]
AllowReplace = Annotated[
    bool,
    Option("--allow-replace", help="replace what cannot be changed in place"),
]
KeepMessages = Annotated[
    bool,
    Option("--keep-messages", help="keep the messages and consumers of replaced streams"),
]
Adopt = Annotated[bool, Option("--adopt", help="take over what belongs to another owner or to none")]


MaxRemovals = Annotated[
    int | None,
    Option(
        "--max-removals",
        metavar="N",
        min=0,
        help="do nothing if more assets than that would be removed [10, or a tenth of the account's]",
    ),
]


def planned(session: Session, wanted: DocumentSet, options: PlanOptions, *, destroy: bool = False) -> Plan:
    from natsctl.desired.planner import destruction_for, plan_for

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
    """Return the result of reading; it is restarted if one of several servers dies."""
    from natsctl.client.backup.transfer import RetryingManager

    retrying = RetryingManager(manager)
    return await retrying.patiently(lambda: work(retrying.manager))


def check_owned(wanted: DocumentSet) -> None:
    """Raise UsageError if no owner is named for the assets to prune."""
    if not wanted.is_owned:
        raise UsageError(
            "--prune needs an owner: the documents name none",
            hint="give --owner NAME, or owner: in a document; only what that owner's documents created is removed",
        )


async def _unfinished(manager: Manager) -> list[str]:
    """Return notes on interrupted or running replacements; an apply would finish them first."""
    from natsctl.desired.apply.holding_stream import PREFIX, names_of

    names = [name.removeprefix(PREFIX) for name in await names_of(manager)]
    return [f"the replacement of {name} is not finished: apply does that first" for name in names]


def show_plan(plan: Plan) -> None:
    from natsctl.cli.render.plans import render_plan

    output.note(render_plan(plan, output.width()))


def plan(
    session: Session,
    named: DocumentFlags,
    prune: Prune = False,
    allow_replace: AllowReplace = False,
    keep_messages: KeepMessages = False,
    adopt: Adopt = False,
    max_removals: MaxRemovals = None,
    allow_empty: AllowEmpty = False,
    out: Annotated[Path | None, Option("--out", "-o", metavar="FILE", help="save the plan, for apply")] = None,
    json: Json = False,
) -> int:
    """Show what apply would do, in order, and change nothing; exit status 10 if there is anything to do.

    Fields that a document does not mention are left as they are; null asks for the default. The owner of an asset is
    in its metadata (natsctl.owner): apply labels the assets that it creates. An asset that natsctl did not create, or
    that belongs to another owner, is changed only with --adopt, to take it over. Adopted assets are never pruned.

    The signs: + created, ~ changed in place, ± removed and created again, - removed.
    """
    from natsctl.desired.planner import PlanOptions

    wanted = named.load(allow_empty=allow_empty)
    options = PlanOptions(prune, allow_replace, keep_messages, adopt, max_removals=max_removals)
    made = planned(session, wanted, options)
    if out is not None:
        _save(made, out, json)
    if json:
        output.emit_json(saved_document(made))
    else:
        from natsctl.cli.render.plans import render_plan

        output.emit(render_plan(made, output.width(), output.has_color(sys.stdout)))
    return ExitCode.DRIFT if made.changes else ExitCode.DONE


def _save(made: Plan, path: Path, json: bool) -> None:
    if str(path) == "-":
        raise UsageError("--out -: a plan is saved to a file", hint="-j prints one")
    with as_usage_error(f"--out {path}"), atomic_write(path, PRIVATE) as file:
        file.write(encode_plan(made))
    if not json:
        output.note(safe(f"saved: natsctl apply --plan {path} carries it out"))


def diff(
    session: Session,
    named: DocumentFlags,
    prune: Annotated[
        bool,
        Option("--prune", help="also list what apply --prune would remove"),
    ] = False,
    allow_empty: AllowEmpty = False,
    json: Json = False,
) -> int:
    """Show how the account differs from the documents, field by field; exit status 10 if it does.

    A field reads `max_age: 1d → 1y`: as the server has it, and as the documents want it. Fields that no document
    mentions are not compared.
    """
    wanted = named.load(allow_empty=allow_empty)
    if prune:
        check_owned(wanted)

    async def work(manager: Manager) -> Plan:
        from natsctl.desired.planner import PlanOptions, plan_for

        return await plan_for(manager, wanted, PlanOptions(prune=prune))

    found = Drift.of(session.run(work))
    if json:
        output.emit_json(found)
    else:
        from natsctl.cli.render.plans import render_drift

        output.emit(render_drift(found, output.width(), output.has_color(sys.stdout)))
    return ExitCode.DRIFT if found.is_any else ExitCode.DONE


class PlannedAsset(Model, kw_only=True, omit_defaults=False):
    """One asset that differs from its document; `fault` is the reason if it could not be compared."""

    kind: str
    stream: str
    consumer: str = ""
    differences: list[Difference] = field(default_factory=list)
    fault: str = ""

    @classmethod
    def of(cls, change: Change) -> PlannedAsset:
        fault = change.refused if change.before is not None and not change.differences else ""
        return cls(
            kind=change.kind,
            stream=change.stream,
            consumer=change.consumer,
            differences=change.differences,
            fault=fault if change.action is not Action.DELETE else "",
        )

    @property
    def key(self) -> AssetKey:
        return AssetKey(self.stream, self.consumer)


class Drift(Model, kw_only=True, omit_defaults=False):
    """Differences between an account and documents; `extra` are the owner's assets that none of them describes."""

    owner: str
    different: list[PlannedAsset] = field(default_factory=list)
    missing: list[PlannedAsset] = field(default_factory=list)
    extra: list[PlannedAsset] = field(default_factory=list)
    equal: int = 0

    @classmethod
    def of(cls, plan: Plan) -> Drift:
        drift = cls(owner=plan.owner, equal=plan.unchanged)
        for change in plan.changes:
            if change.action is Action.DELETE:
                drift.extra.append(PlannedAsset.of(change))
            elif change.before is None:
                drift.missing.append(PlannedAsset.of(change))
            elif change.differences or change.refused:
                drift.different.append(PlannedAsset.of(change))
            else:
                drift.equal += 1  # it is only removed because its stream is replaced
        return drift

    @property
    def is_any(self) -> bool:
        return bool(self.different or self.missing or self.extra)
