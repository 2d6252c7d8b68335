"""Choice of the server that a command uses, and its login there.

Order: --server, NATS_URL, --context or NATS_CONTEXT, the selected context, `nats://127.0.0.1:4222` if something
listens there, the embedded server. Only the last two depend on running servers: a server that was named is never
replaced by another.

A context is checked by its file, its secrets, its URLs, and on request by connecting to its server.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.client.contexts import ContextNotFoundError, Contexts
from natsctl.client.settings import (
    DEFAULT_TIMEOUT_S,
    Settings,
    combine,
    credentials,
    expand_path,
    from_environment,
    tls_context,
)
from natsctl.hints import Any, NamedTuple
from natsctl.wire.server_url import UNESCAPED, ServerUrlError, parse_server_url, without_login

DEFAULT_URL = "nats://127.0.0.1:4222"
_API_PREFIX = "$JS.API"
_EVENT_PREFIX = "$JS.EVENT"


class TargetKind(enum.Enum):
    """How the server was chosen."""

    NAMED = "named"
    DEFAULT = "default"


class Target(NamedTuple):
    """A server to connect to; `origin` is the source of its address, for error texts."""

    kind: TargetKind
    urls: tuple[str, ...]
    origin: str
    settings: Settings
    timeout_s: float = DEFAULT_TIMEOUT_S

    @property
    def api_prefix(self) -> str:
        """Return the subject prefix of JetStream API requests there."""
        if self.settings.jetstream_api_prefix:
            return self.settings.jetstream_api_prefix.rstrip(".")
        domain = self.settings.jetstream_domain
        return f"$JS.{domain}.API" if domain else _API_PREFIX

    def event_subject(self, subject: str) -> str:
        """Return a subject of JetStream's advisories and metrics (`$JS.EVENT.…`) with the prefix used there."""
        prefix = self.settings.jetstream_event_prefix.rstrip(".")
        return subject.replace(_EVENT_PREFIX, prefix, 1) if prefix and subject.startswith(_EVENT_PREFIX) else subject

    @property
    def shown(self) -> str:
        """Return the URLs without logins, for texts."""
        return ", ".join(without_login(url) for url in self.urls)


def resolve(
    flags: Settings, environment: Mapping[str, str], context: str | None = None, *, no_context: bool = False
) -> Target:
    """Return the server that flags, environment and contexts name, or the default one."""
    said = from_environment(environment)
    name = "" if no_context else context or environment.get("NATS_CONTEXT", "")
    contexts = Contexts(environment)
    chosen = Settings()
    if name:
        chosen, context_origin = contexts.load(name), f"context {name}"
    elif not no_context and (name := contexts.selected()):
        context_origin = f"selected context {name}"
        chosen = _selected(contexts, name, needed=not (flags.url or said.url))
    settings = combine([_expanded(flags), _expanded(said), chosen])
    timeout_s = settings.timeout_s or DEFAULT_TIMEOUT_S
    origin = "--server" if flags.url else "NATS_URL" if said.url else context_origin if name else ""
    if not origin:
        return Target(TargetKind.DEFAULT, (DEFAULT_URL,), "default", settings, timeout_s)
    return Target(TargetKind.NAMED, server_urls(settings.url or DEFAULT_URL, origin), origin, settings, timeout_s)


def _selected(contexts: Contexts, name: str, *, needed: bool) -> Settings:
    """Return the selected context; a missing one is an error only if it would have named the server."""
    try:
        return contexts.load(name)
    except ContextNotFoundError as failure:
        if not needed:
            return Settings()
        gone = ContextNotFoundError(f"the selected context {name!r} does not exist", failure.known)
        gone.hint = "natsctl context select chooses another one, natsctl context unselect none"
        raise gone from failure


def _expanded(settings: Settings) -> Settings:
    """Return the settings with `~` and `$VAR` in paths replaced."""
    paths = {name: getattr(settings, name) for name in ("creds", "nkey", "cert", "key", "ca")}
    expanded: dict[str, Any] = {name: expand_path(path) for name, path in paths.items() if path}
    return settings._replace(**expanded)


def server_urls(text: str, origin: str) -> tuple[str, ...]:
    """Return the URLs of a comma separated list, with scheme and port added.

    Raises UsageError without repeating them: a misplaced part may be a password.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise UsageError(f"{origin}: no server in {text!r}")
    urls = []
    for number, part in enumerate(parts, 1):
        try:
            urls.append(parse_server_url(part).full)
        except ServerUrlError as failure:
            which = f"server {number} of {len(parts)} is" if len(parts) > 1 else "this is"
            raise UsageError(
                f"{origin}: {which} not a server URL: {failure}",
                hint=UNESCAPED if len(parts) > 1 and "@" in text else failure.hint,
            ) from None
    return tuple(urls)


class CheckedContext(NamedTuple):
    """Result of a check; `fault` is "" for a usable context, `server` the result of a connection."""

    name: str
    fault: str = ""
    server: dict[str, Any] | None = None


async def check(contexts: Contexts, name: str, *, connecting: bool, timeout_s: float | None = None) -> CheckedContext:
    """Read a context and its secrets, and connect with it if requested."""
    try:
        target = target_of(contexts, name, timeout_s)
        return CheckedContext(name, server=await _reached(target) if connecting else None)
    except NatsctlError as failure:
        return CheckedContext(name, fault=str(failure))


def target_of(contexts: Contexts, name: str, timeout_s: float | None) -> Target:
    """Return the server that a context names by itself; raises UsageError for an unreadable context."""
    settings = contexts.load(name)
    urls = server_urls(settings.url or DEFAULT_URL, f"context {name}")
    credentials(settings)
    tls_context(settings, urls)
    return Target(TargetKind.NAMED, urls, f"context {name}", settings, timeout_s or DEFAULT_TIMEOUT_S)


async def _reached(target: Target) -> dict[str, Any]:
    """Return the server's information and its round-trip time; raises as `connect` does."""
    from natsctl.client.dial import connect

    async with await connect(target, name="natsctl context") as connection:
        rtt_s = await connection.rtt_s()
        info = connection.info
        return {
            "url": connection.url,
            "server_name": str(info.get("server_name", "")),
            "version": str(info.get("version", "")),
            "rtt": int(rtt_s * 1e9),
        }
