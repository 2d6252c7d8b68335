"""What has to happen for an account to be as documents say: changes, each to one asset, with what must come before."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import field

from natsctl.api.model import Model
from natsctl.plan.asset import AssetKey


class Action(StrEnum):
    """The action on an asset."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    """Removed and created again, as the server does not change such a field in place."""
    DELETE = "delete"
    NONE = "none"


class Difference(Model, kw_only=True, omit_defaults=False):
    """One field that differs; `path` is `max_age` or `placement.tags`, absent values are null."""

    path: str
    old: Any = None
    new: Any = None


class Change(Model, kw_only=True, omit_defaults=False):
    """One step of a plan, in JSON as in a saved plan."""

    action: Action
    kind: str
    stream: str
    consumer: str = ""
    differences: list[Difference] = field(default_factory=list)
    config: dict[str, Any] | None = None
    """The whole configuration to send, ownership label included; null if the asset is removed."""
    before: dict[str, Any] | None = None
    """The configuration that the plan was made for, without server-written metadata; null if there is no asset."""
    needs: list[str] = field(default_factory=list)
    """Assets whose changes must be done first: `STREAM`, or `STREAM > CONSUMER`."""
    refused: str = ""
    """The reason why the change is not allowed; a plan with such a change is not applied."""
    hint: str = ""
    place: str = ""
    """The location in the documents."""
    messages: int = 0
    bytes: int = 0
    """The contents of an asset that is removed or replaced."""
    losses: list[str] = field(default_factory=list)
    """Losses through an update: messages, or progress of a consumer."""
    notes: list[str] = field(default_factory=list)
    """Further consequences; the losses are among them."""

    @property
    def key(self) -> AssetKey:
        """The asset."""
        return AssetKey(self.stream, self.consumer)


class Plan(Model, kw_only=True, omit_defaults=False):
    """All changes, in an order in which they can be done one by one; `unchanged` counts the other assets."""

    format: int = 1
    owner: str
    created: str = ""
    server: dict[str, Any] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    unchanged: int = 0
    keep_messages: bool = False
    """Whether replaced streams get their messages and consumers back."""
    max_removals: int | None = None
    """The most removals with which the plan may be applied; null sets no limit."""
    notes: list[str] = field(default_factory=list)

    @property
    def removals(self) -> int:
        """The number of removed assets, replacements that lose their messages included."""
        kept = self.keep_messages
        lost = [one for one in self.changes if one.action is Action.REPLACE and not (kept and not one.consumer)]
        return len(lost) + sum(one.action is Action.DELETE for one in self.changes)

    @property
    def refused(self) -> list[Change]:
        """The changes that are not allowed."""
        return [change for change in self.changes if change.refused]
