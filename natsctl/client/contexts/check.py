"""Whether a context can be used: its file, its secrets, its URLs, and if asked the server that it leads to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from natsctl.api.errors import NatsctlError
from natsctl.client.contexts.store import Contexts
from natsctl.client.servers import DEFAULT_URL, Target, TargetKind, server_urls
from natsctl.client.settings import DEFAULT_TIMEOUT_S


@dataclass(slots=True)
class Checked:
    """What was found; `fault` is "" for a context that can be used, `server` what a connection showed."""

    name: str
    fault: str = ""
    server: dict[str, Any] | None = None


async def check(contexts: Contexts, name: str, *, connecting: bool, timeout_s: float | None = None) -> Checked:
    """Read a context and everything that it points to, and connect with it and nothing else if asked."""
    try:
        target = _target(contexts, name, timeout_s)
        return Checked(name, server=await _reached(target) if connecting else None)
    except NatsctlError as failure:
        return Checked(name, fault=str(failure))


def _target(contexts: Contexts, name: str, timeout_s: float | None) -> Target:
    """The server that a context names by itself; raises UsageError for what can not be read."""
    from natsctl.client.login import login_options, tls_context

    settings = contexts.load(name)
    urls = server_urls(settings.url or DEFAULT_URL, f"context {name}")
    login_options(settings)
    tls_context(settings, urls)
    return Target(TargetKind.NAMED, urls, f"context {name}", settings, timeout_s or DEFAULT_TIMEOUT_S)


async def _reached(target: Target) -> dict[str, Any]:
    """What the server says of itself, and how long it took to answer; raises what `connect` raises."""
    from natsctl.client.dial import connect
    from natsctl.client.settings import without_login

    async with await connect(target, name="natsctl context") as connection:
        rtt_s = await connection.rtt_s()
        info = connection.info
        return {
            "url": without_login(connection.url),
            "server_name": str(info.get("server_name", "")),
            "version": str(info.get("version", "")),
            "rtt": int(rtt_s * 1e9),
        }
