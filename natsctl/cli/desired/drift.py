"""What `diff -j` prints."""

from __future__ import annotations

from msgspec import field

from natsctl.api.model import Model
from natsctl.plan.change import Action, Change, Difference, Plan


class Asset(Model, kw_only=True, omit_defaults=False):
    """One asset that is not as documents say, and how; `fault` is why it could not be compared."""

    kind: str
    stream: str
    consumer: str = ""
    differences: list[Difference] = field(default_factory=list)
    fault: str = ""

    @classmethod
    def of(cls, change: Change) -> Asset:
        """The asset of a change."""
        fault = change.refused if change.action is Action.UPDATE and not change.differences else ""
        return cls(
            kind=change.kind,
            stream=change.stream,
            consumer=change.consumer,
            differences=change.differences,
            fault=fault,
        )


class Drift(Model, kw_only=True, omit_defaults=False):
    """How an account differs from documents; `extra` is what their owner has and none of them describes."""

    owner: str
    different: list[Asset] = field(default_factory=list)
    missing: list[Asset] = field(default_factory=list)
    extra: list[Asset] = field(default_factory=list)
    equal: int = 0

    @classmethod
    def of(cls, plan: Plan) -> Drift:
        """What a plan that prunes says of the account."""
        sorts = {Action.CREATE: "missing", Action.DELETE: "extra"}
        found: dict[str, list[Asset]] = {"different": [], "missing": [], "extra": []}
        for change in plan.changes:
            found[sorts.get(change.action, "different")].append(Asset.of(change))
        return cls(owner=plan.owner, equal=plan.unchanged, **found)
