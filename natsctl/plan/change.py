"""What has to happen for an account to be as documents say: changes, each to one asset, with what must come before."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import field

from natsctl.api.model import Model
from natsctl.plan.asset import AssetKey


class Action(StrEnum):
    """What becomes of an asset."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    """Removed and made anew, as the server changes no such field in place."""
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
    """The whole configuration to send, ownership label included; null where the asset is removed."""
    before: dict[str, Any] | None = None
    """The configuration that the plan was made for, without what servers add; null where there is no asset."""
    needs: list[str] = field(default_factory=list)
    """Assets whose changes must be done first: `STREAM`, or `STREAM > CONSUMER`."""
    refused: str = ""
    """Why it may not be done; a plan with such a change is not applied."""
    hint: str = ""
    place: str = ""
    """Where the document asks for it."""
    messages: int = 0
    bytes: int = 0
    """What an asset that is removed or replaced holds."""
    losses: list[str] = field(default_factory=list)
    """What an update takes away: messages, or progress of a consumer."""
    notes: list[str] = field(default_factory=list)
    """What else comes of it; the losses are among them."""

    @property
    def key(self) -> AssetKey:
        """The asset."""
        return AssetKey(self.stream, self.consumer)


class Plan(Model, kw_only=True, omit_defaults=False):
    """All changes, in an order in which they can be done one by one; `unchanged` counts what stays as it is."""

    format: int = 1
    owner: str
    created: str = ""
    server: dict[str, Any] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    unchanged: int = 0
    keep_messages: bool = False
    """Whether streams that are replaced are to have their messages and consumers again."""
    max_removals: int | None = None
    """The most removals with which the plan may be carried out; null sets no limit."""
    notes: list[str] = field(default_factory=list)

    @property
    def removals(self) -> int:
        """How many assets are removed, those included that are made anew without their messages."""
        kept = self.keep_messages
        lost = [one for one in self.changes if one.action is Action.REPLACE and not (kept and not one.consumer)]
        return len(lost) + sum(one.action is Action.DELETE for one in self.changes)

    @property
    def refused(self) -> list[Change]:
        """The changes that may not be done."""
        return [change for change in self.changes if change.refused]
