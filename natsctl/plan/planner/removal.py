"""Assets that are removed: what is lost with them, and which may not be."""

from __future__ import annotations

from natsctl.plan import labels
from natsctl.plan.change import Action, Change
from natsctl.plan.world import Live

UNPROTECT = "apply it with `protect: false` first"
TAKE_OVER = "take it over with --adopt, or leave it out of the documents"


def removal_of(live: Live) -> Change:
    """Return the change that removes an asset."""
    key = live.key
    change = Change(
        action=Action.DELETE,
        kind=str(key.kind),
        stream=key.stream,
        consumer=key.consumer,
        before=labels.without_server_made(live.config),
    )
    hold(change, live)
    return change


def hold(change: Change, live: Live) -> None:
    """Record what is lost with an asset."""
    state = live.info.get("state") or {}
    change.messages, change.bytes = int(state.get("messages") or 0), int(state.get("bytes") or 0)


def refuse_removal(change: Change, live: Live, owner: str, adopt: bool) -> None:
    """Refuse a change that would remove an asset which is protected or belongs to another owner."""
    config, of = live.config, labels.owner_of(live.config)
    what = "it" if live.key == change.key else str(live.key)
    if labels.is_protected(config):
        change.refused, change.hint = f"{what} is protected", UNPROTECT
    elif of and of != owner and not adopt:
        change.refused, change.hint = f"{what} belongs to {of}", TAKE_OVER
