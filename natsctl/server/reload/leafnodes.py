"""What a reload may change of the block `leafnodes`, in the words of nats-server: remotes come and go, the rest stays.

Users and accounts of the block may change too, where nats-server refuses that: links are held to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from natsctl.server.conf.values import format_seconds
from natsctl.server.leaf.options import LeafNodesOptions, LeafRemoteOptions
from natsctl.server.monitor.refused import BadRequestError

REFUSAL: Final = "config reload not supported for LeafNode: "


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _subjects(value: tuple[str, ...]) -> str:
    return f"[{' '.join(value)}]"


_LISTENER: Final[tuple[tuple[str, Callable[[LeafNodesOptions], Any], Callable[[Any], str]], ...]] = (
    ("Host", lambda block: block.host if block.port else "", _plain),
    ("Port", lambda block: block.port, _plain),
    ("AuthTimeout", lambda block: block.login_timeout_s if block.port else 0.0, lambda value: f"{value:g}"),
    ("Advertise", lambda block: block.advertise, _plain),
    ("NoAdvertise", lambda block: block.no_advertise, _plain),
    ("ReconnectInterval", lambda block: block.reconnect_s, format_seconds),
    ("WriteDeadline", lambda block: block.write_deadline_s, format_seconds),
    ("MinVersion", lambda block: block.min_version, _plain),
    ("IsolateLeafnodeInterest", lambda block: block.isolate, _plain),
    ("DialTimeout", lambda block: block.dial_timeout_s, format_seconds),
)
"""What stays of the block: nats-server's field, where it is here, how its value is shown."""

_REMOTE: Final[tuple[tuple[str, str, Callable[[Any], str]], ...]] = (
    ("NoRandomize", "no_randomize", _plain),
    ("Hub", "hub", _plain),
    ("DenyImports", "deny_imports", _subjects),
    ("DenyExports", "deny_exports", _subjects),
    ("FirstInfoTimeout", "first_info_timeout_s", format_seconds),
    ("DialTimeout", "dial_timeout_s", format_seconds),
    ("LocalIsolation", "isolate", _plain),
    ("RequestIsolation", "request_isolation", _plain),
    ("IgnoreDiscoveredServers", "ignore_discovered_servers", _plain),
)
"""What stays of a remote as long as it is the same one; whether it is disabled, and its TLS, may change."""


def refuse_leafnodes(old: LeafNodesOptions | None, new: LeafNodesOptions | None) -> None:
    """Raise BadRequestError where something differs that needs a restart."""
    before, after = old or LeafNodesOptions(), new or LeafNodesOptions()
    for called, value_of, shown in _LISTENER:
        if value_of(before) != value_of(after):
            raise BadRequestError(
                f'{REFUSAL}field "{called}": old={shown(value_of(before))}, new={shown(value_of(after))}'
            )
    known = {remote.key: remote for remote in before.remotes}
    for remote in after.remotes:
        if remote.key in known:
            _refuse_remote(known[remote.key], remote)


def _refuse_remote(old: LeafRemoteOptions, new: LeafRemoteOptions) -> None:
    for called, name, shown in _REMOTE:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            field = f'field "{called}": old={shown(before)}, new={shown(after)}'
            raise BadRequestError(f"{REFUSAL}remote {new.label}: {field}")


def changed_leafnodes(old: LeafNodesOptions | None, new: LeafNodesOptions | None) -> Iterator[str]:
    """Yield a line for each remote that goes, or is switched on or off."""
    fresh = {remote.key: remote for remote in (new.remotes if new is not None else ())}
    for remote in old.remotes if old is not None else ():
        now = fresh.get(remote.key)
        if now is None:
            yield f"Reloaded: LeafNode Remote {remote.label} removed"
        elif now.disabled != remote.disabled:
            yield f"Reloaded: LeafNode Remote {remote.label} Disabled value is: {_plain(now.disabled)}"
