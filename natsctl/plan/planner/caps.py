"""What a server caps by its own configuration, found out where a plan hangs on it.

A server shows nowhere how long its duplicate windows may be, nor how much one pull may ask for; by both it shortens
what it fills in. It tells them in its refusals. So it is asked for something that it refuses in any case: an update of
a stream that does not exist, a consumer that begins at no sequence. Nothing can come of either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from natsctl.api import codec, endpoints
from natsctl.api.errors import ApiResponseError, NotAuthorisedError
from natsctl.api.model import INT64_MAX
from natsctl.api.units import parse_duration
from natsctl.plan.asset import AssetKey
from natsctl.plan.change import Action, Plan
from natsctl.plan.planner.settle import MAX_DUPLICATE_WINDOW, MAX_REQUEST_BATCH, SERVER_MAX_ACK_PENDING
from natsctl.plan.wanted import DocumentSet

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.plan.world import World

CAPPED: Final = {
    "duplicate_window": MAX_DUPLICATE_WINDOW,
    "max_batch": MAX_REQUEST_BATCH,
    "max_ack_pending": SERVER_MAX_ACK_PENDING,
}
"""Fields that servers fill in by their caps."""
MUCH: Final = INT64_MAX // 4
_WINDOW: Final = re.compile(r"larger then server limit of (\S+)")
_BATCH: Final = re.compile(r"max request batch exceeds server limit of (\d+)")
_PENDING: Final = re.compile(r"max ack pending exceeds system limit of (\d+)")


def doubtful(wanted: DocumentSet, plan: Plan) -> dict[str, AssetKey]:
    """Return the fields that differ, that no document gives and that a cap may explain; each with an asset."""
    found: dict[str, AssetKey] = {}
    for change in plan.changes:
        one = wanted.wanted.get(change.key)
        if one is None or change.action in (Action.CREATE, Action.DELETE):
            continue
        for difference in change.differences:
            if difference.path in CAPPED and not one.config.get(difference.path):
                found.setdefault(difference.path, change.key)
    return found


async def read_caps(manager: Manager, fields: Mapping[str, AssetKey], world: World) -> dict[str, int]:
    """Return the server's caps for these fields, as members of `World.limits`."""
    caps: dict[str, int] = {}
    for name, key in fields.items():
        if name == "duplicate_window":
            found = await _window_ns(manager)
        else:
            pattern = _BATCH if name == "max_batch" else _PENDING
            text = await _refused_consumer(manager, key.stream, {name: MUCH})
            match = pattern.search(text)
            found = int(match[1]) if match else 0
            limits = (world.assets[key.origin].config if key.origin in world.assets else {}).get("consumer_limits")
            if name == "max_ack_pending" and found == (limits or {}).get("max_ack_pending"):
                found = 0  # the stream's own
        if found:
            caps[CAPPED[name]] = found
    return caps


async def _window_ns(manager: Manager) -> int:
    name = _unused("NATSCTL")
    config = {"name": name, "subjects": [f"natsctl.{name}"], "duplicate_window": MUCH}
    match = _WINDOW.search(await _refusal(manager, endpoints.STREAM_UPDATE, (name,), config))
    return parse_duration(match[1]) if match else 0


async def _refused_consumer(manager: Manager, stream: str, fields: dict[str, Any]) -> str:
    name = _unused("natsctl")
    # Without the sequence to begin at, servers of all versions refuse it; newer ones check the action as well.
    start = {"deliver_policy": "by_start_sequence", "ack_policy": "explicit"}
    body = {"stream_name": stream, "config": {"durable_name": name, **start, **fields}, "action": "update"}
    return await _refusal(manager, endpoints.CONSUMER_CREATE, (stream, name), body)


def _unused(prefix: str) -> str:
    """Return a name that is not in use."""
    import secrets  # of no use to a plan without doubts, and slow to import

    return f"{prefix}_{secrets.token_hex(8)}"


async def _refusal(manager: Manager, endpoint: endpoints.Endpoint, tokens: tuple[str, ...], body: Any) -> str:
    """Return why the server refuses a request; "" where it gives no reason."""
    subject = endpoint.subject(*tokens, prefix=manager.connection.target.api_prefix)
    try:
        await manager.requests.exchange(subject, codec.encode(body))
    except ApiResponseError as failure:
        return failure.text
    except NotAuthorisedError:
        return ""
    return ""
