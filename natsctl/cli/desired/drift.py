"""What `diff` finds, and prints with -j."""

from __future__ import annotations

from msgspec import field

from natsctl.api.model import Model
from natsctl.plan.asset import AssetKey
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
        """Where it is on the server."""
        return AssetKey(self.stream, self.consumer)


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
        drift = cls(owner=plan.owner, equal=plan.unchanged)
        for change in plan.changes:
            if change.action is Action.DELETE:
                drift.extra.append(Asset.of(change))
            elif change.before is None:
                drift.missing.append(Asset.of(change))
            elif change.differences or change.refused:
                drift.different.append(Asset.of(change))
            else:
                drift.equal += 1  # it only goes with its stream, which is replaced
        return drift

    @property
    def is_any(self) -> bool:
        """Whether anything differs."""
        return bool(self.different or self.missing or self.extra)
