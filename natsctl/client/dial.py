"""Connecting to a target: every address in turn, and failures by who must act."""

from __future__ import annotations

import functools
import ssl
from typing import Any

from natsctl.api.errors import NatsctlError, NotAuthorisedError, UnreachableError, UsageError, install_command
from natsctl.client.connection import Connection, SomeRefusedError, Tracer
from natsctl.client.nats_py import failure_class
from natsctl.client.servers import Target
from natsctl.client.settings import credentials, credentials_at, tls_context
from natsctl.wire.client import ClientCredentials, TlsNotOfferedError, is_login_refusal
from natsctl.wire.server_url import parse_server_url, without_login


class NotListeningError(UnreachableError):
    """The address refused the connection: no server listens there."""


async def connect(target: Target, *, name: str, trace: bool = False) -> Connection:
    """Return a connection to the first address of the target that accepts it, within the timeout for each.

    Raises NotAuthorisedError, NotListeningError or another UnreachableError, or UsageError for unreadable secrets.
    """
    options: dict[str, Any] = {"name": name}
    if context := tls_context(target.settings, target.urls):
        options["tls"] = context
        options["tls_handshake_first"] = target.settings.tls_first
    if target.settings.inbox_prefix:
        options["inbox_prefix"] = target.settings.inbox_prefix.rstrip(".")
    connection = Connection(target, Tracer() if trace else None)
    connection.dial = functools.partial(_open, connection, options, credentials(target.settings))
    await connection.dial()
    return connection


async def _open(connection: Connection, options: dict[str, Any], login: ClientCredentials) -> None:
    """Open a connection to the first address of its target that accepts it; raises as `connect`."""
    target = connection.target
    failures: list[NatsctlError] = []
    for url in target.urls:
        try:
            parts = parse_server_url(url)
            await connection.open(parts.bare, options, credentials_at(parts, login))
        except ImportError as reason:
            # nats-py needs it only if a URL asks for a WebSocket.
            raise UsageError(
                f"{without_login(url)} needs the package aiohttp",
                hint=f"{install_command('aiohttp')}, or use a nats:// URL",
            ) from reason
        except (NatsctlError, failure_class(), OSError, ValueError) as reason:
            failures.append(explained(reason, url, target))
            continue
        return
    raise _summary(failures, target)


def _summary(failures: list[NatsctlError], target: Target) -> NatsctlError:
    """Return the failure of all addresses: a refused login is more useful to know than a server that is down."""
    if len(failures) < 2:
        return failures[0] if failures else UnreachableError(f"no server in {target.origin}")
    refused = [failure for failure in failures if isinstance(failure, NotAuthorisedError)]
    kind: type[NatsctlError] = UnreachableError
    if refused:
        kind = NotAuthorisedError if len(refused) == len(failures) else SomeRefusedError
    first = (refused or failures)[0]
    return kind(f"no connection to any of {len(failures)} servers: {'; '.join(map(str, failures))}", hint=first.hint)


def explained(reason: Exception, url: str, target: Target) -> NatsctlError:
    """Return the failure of one address with a hint for the user."""
    where = without_login(url)
    named = f" (from {target.origin})" if target.origin not in ("default", "--server") else ""
    text = (getattr(reason, "strerror", None) or str(reason)).removeprefix("nats: ").strip("'\" ")
    if isinstance(reason, NatsctlError):
        return reason
    if is_login_refusal(text):
        return NotAuthorisedError(
            f"{where}{named} refused the login: {text}",
            hint="give --user and --password, --token, --creds or --nkey, or a --context that has them",
        )
    if isinstance(reason, TlsNotOfferedError):
        hint = "drop tls:// and the TLS flags, or use another server"
        return UnreachableError(f"{where}{named} does not offer TLS", hint=hint)
    if isinstance(reason, ssl.SSLError):
        return UnreachableError(f"no TLS with {where}{named}: {text}", hint="check --tlsca, --tlscert and --tlskey")
    if isinstance(reason, ConnectionRefusedError):
        hint = "is the server running? `natsctl server run` starts one"
        return NotListeningError(f"nothing listens at {where}{named}", hint=hint)
    if isinstance(reason, TimeoutError):
        return UnreachableError(f"no answer from {where}{named} within {target.timeout_s:g}s")
    return UnreachableError(f"no connection to {where}{named}: {text or type(reason).__name__}")
