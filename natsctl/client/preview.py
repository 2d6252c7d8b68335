"""What a dry run would send: the requests that change something, kept instead of sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from natsctl.client.message import HeaderLike


class Planned(NamedTuple):
    """One message that would have been sent; `body` is a JSON value where the message is JSON, else its bytes."""

    subject: str
    body: Any = None
    headers: HeaderLike | None = None


class DryRunError(Exception):  # nothing went wrong: it is how a dry run ends
    """Raised in place of the first change of a dry run, with everything that the command knows it would send.

    `effect` says what would happen, as far as it is known: JSON values by name, such as `{"messages": 3}`.
    """

    def __init__(self, *planned: Planned, effect: dict[str, Any] | None = None) -> None:
        super().__init__("dry run")
        self.planned = planned
        self.effect = effect or {}
