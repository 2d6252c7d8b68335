"""Reload: a changed configuration on a running server.

Everything is read and checked first: the file and the flags over it, differences that need a restart, certificates,
users. Only then anything changes, so that a bad file changes nothing. `configured` is the operator's last
configuration, before anything was derived from the machine or from the ports that were found free; differences are
between two of those.

Of the block `leafnodes`, remotes may come and go. Its users and accounts may change too, where nats-server refuses
that: they are applied to links. Names and texts of refusals are nats-server's: tools and people search for them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from natsctl.api.codec import go_quote
from natsctl.api.errors import NatsctlError
from natsctl.api.subject_index import Steps, finish
from natsctl.api.units import format_size
from natsctl.broker.auth.credentials import NOT_TRUSTED
from natsctl.broker.auth.static_auth import User
from natsctl.broker.deferred_work import SUBS_STEP
from natsctl.broker.refusals import CloseReason
from natsctl.server.broker_setup import broker_options, jetstream_accounts
from natsctl.server.conf.values import format_seconds
from natsctl.server.instance import ServerInstance, load_tls_connections
from natsctl.server.logins import callout_faults
from natsctl.server.monitor.query import BadRequestError, ReloadDone
from natsctl.server.operator_mode import reload_operator_mode
from natsctl.server.options import (
    EncryptionOptions,
    LeafNodesOptions,
    LeafProxyOptions,
    LeafRemoteOptions,
    ServerOptions,
    WebSocketOptions,
)
from natsctl.server.process.flags import FlagError
from natsctl.server.tls.contexts import TlsContexts

if TYPE_CHECKING:
    from natsctl.broker.broker_options import BrokerOptions
    from natsctl.jetstream.engine import Engine


REFUSAL: Final = "config reload not supported for "

_LISTENER: Final = {
    "host": "Host", "port": "Port", "proxy_required": "ProxyRequired", "auth_timeout_s": "AuthTimeout",
    "advertise": "Advertise", "no_advertise": "NoAdvertise", "reconnect_s": "ReconnectInterval",
    "write_deadline_s": "WriteDeadline", "write_timeout": "WriteTimeout", "min_version": "MinVersion",
    "isolate": "IsolateLeafnodeInterest", "dial_timeout_s": "DialTimeout",
}  # fmt: skip
"""Fixed options of the block `leafnodes`, by their names in nats-server."""
_REMOTE: Final = {
    "no_randomize": "NoRandomize", "hub": "Hub", "deny_imports": "DenyImports", "deny_exports": "DenyExports",
    "first_info_timeout_s": "FirstInfoTimeout", "dial_timeout_s": "DialTimeout", "isolate": "LocalIsolation",
    "request_isolation": "RequestIsolation", "ignore_discovered_servers": "IgnoreDiscoveredServers",
}  # fmt: skip
"""Fixed options of a remote as long as it is the same one; whether it is disabled, and its TLS, may change."""


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{' '.join(value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(name: str, value: Any) -> str:
    if name in ("auth_timeout_s", "login_timeout_s"):
        return f"{value:g}"
    if name in EncryptionOptions.UNSHOWN:
        return "[REDACTED]"
    return format_seconds(value) if name.endswith("_s") and isinstance(value, float) else _text(value)


def _refuse(old: object, new: object, fields: dict[str, str], about: str = "{}") -> None:
    """Raise BadRequestError for the first of the fields that differs; `about` is the text for its name."""
    for name, field in fields.items():
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            change = f"old={_shown(name, before)}, new={_shown(name, after)}"
            raise BadRequestError(f"{REFUSAL}{about.format(field)}: {change}")


def refuse_leafnodes(old: LeafNodesOptions | None, new: LeafNodesOptions | None) -> None:
    """Raise BadRequestError if a difference needs a restart."""
    before, after = (_compared(block or LeafNodesOptions()) for block in (old, new))
    _refuse(before, after, _LISTENER, 'LeafNode: field "{}"')
    known = {remote.key: remote for remote in before.remotes}
    for remote in after.remotes:
        if (same := known.get(remote.key)) is not None:
            label = remote.label.replace("{", "{{").replace("}", "}}")
            _refuse(same, remote, _REMOTE, f'LeafNode: remote {label}: field "{{}}"')
            if _plain_proxy(same) != _plain_proxy(remote):
                why = 'field "Proxy": only the proxy TLS configuration can be changed'
                raise BadRequestError(f"{REFUSAL}LeafNode: remote {remote.label}: {why}")


def _compared(block: LeafNodesOptions) -> LeafNodesOptions:
    """Return the block as nats-server compares it: without a listener there is neither host nor time limit."""
    if not block.port:
        return replace(block, host="", auth_timeout_s=0.0)
    return replace(block, auth_timeout_s=block.login_timeout_s)


def _plain_proxy(remote: LeafRemoteOptions) -> LeafProxyOptions | None:
    return replace(remote.proxy, tls=None) if remote.proxy is not None else None


def changed_leafnodes(old: LeafNodesOptions | None, new: LeafNodesOptions | None) -> Iterator[str]:
    fresh = {remote.key: remote for remote in (new.remotes if new is not None else ())}
    for remote in old.remotes if old is not None else ():
        now = fresh.get(remote.key)
        if now is None:
            yield f"Reloaded: LeafNode Remote {remote.label} removed"
        elif now.disabled != remote.disabled:
            yield f"Reloaded: LeafNode Remote {remote.label} Disabled value is: {_text(now.disabled)}"


FIXED: Final = {
    "host": "Host", "port": "Port", "server_name": "ServerName", "http_host": "HTTPHost", "http_port": "HTTPPort",
    "https_port": "HTTPSPort", "http_base_path": "HTTPBasePath", "allow_non_tls": "AllowNonTLS",
    "max_pending": "MaxPending", "max_subscriptions": "MaxSubs", "max_subscription_tokens": "MaxSubTokens",
    "max_closed_clients": "MaxClosedClients", "lame_duck_duration_s": "LameDuckDuration",
    "lame_duck_grace_s": "LameDuckGracePeriod", "no_header_support": "NoHeaderSupport",
    "system_account": "SystemAccount", "no_system_account": "NoSystemAccount", "jetstream": "JetStream",
    "domain": "JetStreamDomain", "sync": "SyncInterval", "archive_version": "ArchiveVersion",
    "no_jetstream_strict": "NoJetStreamStrict", "proxy_protocol": "ProxyProtocol",
    "write_timeout": "WriteTimeout", "proxy_required": "ProxyRequired",
    "log_size_limit": "LogSizeLimit", "log_max_files": "LogMaxFiles",
}  # fmt: skip
"""Options that need a restart, by their names in nats-server."""

LOG_LINES: Final[dict[str, Callable[[Any], str]]] = {
    "client_advertise": lambda value: f"Reload: client_advertise = {value}",
    "trace": lambda value: f"Reloaded: trace = {_text(value)}",
    "debug": lambda value: f"Reloaded: debug = {_text(value)}",
    "log_time": lambda value: f"Reloaded: logtime = {_text(value)}",
    "log_utc": lambda value: f"Reloaded: logtime_utc = {_text(value)}",
    "log_file": lambda value: f"Reloaded: log_file = {value or ''}",
    "log_format": lambda value: f"Reloaded: log_format = {value}",
    "syslog": lambda value: f"Reloaded: syslog = {_text(value)}",
    "remote_syslog": lambda value: f"Reloaded: remote_syslog = {value}",
    "max_connections": lambda value: f"Reloaded: max_connections = {value}",
    "users": lambda value: "Reloaded: authorization users",
    "accounts": lambda value: "Reloaded: accounts",
    "user": lambda value: "Reloaded: authorization username",
    "password": lambda value: "Reloaded: authorization password",
    "token": lambda value: "Reloaded: authorization token",
    "ping_interval_s": lambda value: f"Reloaded: ping_interval = {format_seconds(value)}",
    "ping_max": lambda value: f"Reloaded: ping_max = {value}",
    "max_control_line": lambda value: f"Reloaded: max_control_line = {value}",
    "max_payload": lambda value: f"Reloaded: max_payload = {value}",
    "login_timeout_s": lambda value: f"Reloaded: authorization timeout = {value:g}",
    "pid_file": lambda value: f"Reloaded: pid_file = {value or ''}",
    "ports_file_dir": lambda value: f"Reloaded: ports_file_dir = {value or ''}",
    "ocsp": lambda value: "Reloaded: OCSP",
    "ocsp_cache": lambda value: "Reloaded OCSP peer cache",
    "tls": lambda value: f"Reloaded: tls = {'enabled' if value else 'disabled'}",
    "write_deadline_s": lambda value: f"Reloaded: write_deadline = {format_seconds(value)}",
    "max_traced_bytes": lambda value: f"Reloaded: max_traced_msg_len = {value}",
    "connect_error_reports": lambda value: f"Reloaded: connect_error_reports = {value}",
    "reconnect_error_reports": lambda value: f"Reloaded: reconnect_error_reports = {value}",
    "server_tags": lambda value: "Reloaded: tags",
    "server_metadata": lambda value: "Reloaded: metadata",
    "jetstream_limits": lambda value: "Reloaded: JetStream limits",
    "max_memory": lambda value: f"Reloaded: JetStream max_mem_store = {format_size(value)}",
    "max_storage": lambda value: f"Reloaded: JetStream max_file_store = {format_size(value)}",
}
"""Options that a reload may change, in the order of their log lines."""

_ALWAYS: Final = ("users", "accounts")
"""Logged at every reload, as by nats-server, because it cannot compare them."""


def settled(new: ServerOptions, now: ServerOptions, ports: dict[str, int]) -> ServerOptions:
    """Return the new options with the ports that are in use where any free one is asked for."""
    if new.port == -1:
        new = replace(new, port=now.port)
    for name in ("http_port", "https_port"):
        if getattr(new, name) == -1 and ports.get(name):
            new = replace(new, **{name: getattr(now, name)})
    return new


def refuse_fixed(old: ServerOptions, new: ServerOptions) -> None:
    """Raise BadRequestError if a difference needs a restart."""
    _refuse_store(old, new)
    _refuse(old, new, FIXED)
    if new.no_auth_user or any(old.no_auth_user in (user.name, user.nkey) for user in new.users):
        _refuse(old, new, {"no_auth_user": "NoAuthUser"})
    if _without_tls(old.websocket) != _without_tls(new.websocket):
        raise BadRequestError(f"{REFUSAL}Websocket")
    if old.auth_callout != new.auth_callout:
        raise BadRequestError(f"{REFUSAL}AuthCallout: old={_callout(old)}, new={_callout(new)}")
    if (old.operator is None) != (new.operator is None):
        raise BadRequestError("config reload does not support moving to or from an account resolver")
    if _trusted(old) != _trusted(new):
        raise BadRequestError(f"{REFUSAL}TrustedOperators")
    refuse_leafnodes(old.leafnodes, new.leafnodes)


_ENCRYPTION: Final = {"key": "JetStreamKey", "prev_key": "JetStreamOldKey", "cipher": "JetStreamCipher"}


def _refuse_store(old: ServerOptions, new: ServerOptions) -> None:
    _refuse(old.encryption, new.encryption, _ENCRYPTION)
    if not (old.jetstream and new.jetstream):
        return
    if old.store_dir != new.store_dir:
        raise BadRequestError(f"{REFUSAL}jetstream storage directory")
    for name in ("max_memory", "max_storage"):
        before, after = getattr(old, name), getattr(new, name)
        if before and not after:
            raise BadRequestError(f"{REFUSAL}jetstream max memory and max store")
        if after and not before:
            raise BadRequestError(f"{REFUSAL}jetstream dynamic max memory and store")
        if after < before:
            raise BadRequestError(f"{REFUSAL}decreasing jetstream max memory and store")


def changed(old: ServerOptions, new: ServerOptions) -> Iterator[str]:
    for name, line in LOG_LINES.items():
        value = getattr(new, name)
        if value != getattr(old, name) or name in _ALWAYS or (name == "tls" and value is not None):
            yield line(value)
    yield from changed_leafnodes(old.leafnodes, new.leafnodes)
    for keys, what in ((_left(old, new), "removed"), (_left(new, old), "added")):
        if keys:
            yield f"Reloaded: proxies trusted keys [{' '.join(map(go_quote, keys))}] were {what}"


def _left(one: ServerOptions, other: ServerOptions) -> list[str]:
    return [key for key in one.trusted_proxies if key not in other.trusted_proxies]


def _close_proxied(server: ServerInstance, keys: list[str]) -> None:
    links = server.leafs.leafs.accepted() if server.leafs is not None else []
    for session in (*server.broker.sessions.values(), *links):
        if session.proxy in keys and session.close_reason is None:
            session.login.refuse(NOT_TRUSTED)


def _without_tls(options: WebSocketOptions | None) -> WebSocketOptions | None:
    return replace(options, tls=None) if options is not None else None


def _callout(options: ServerOptions) -> str:
    callout = options.auth_callout
    if callout is None:
        return "<nil>"
    users, accounts = _text(callout.auth_users), _text(callout.allowed_accounts)
    return f"&{{{callout.issuer} {callout.account} {users} {callout.xkey} {accounts}}}"


def _trusted(options: ServerOptions) -> object:
    return replace(options.operator, preload=()) if options.operator is not None else None


class Reload(NamedTuple):
    new: ServerOptions
    derived: ServerOptions
    """With the values that come from the machine."""
    options: BrokerOptions
    contexts: dict[str, TlsContexts]
    lines: list[str]
    """Lines of the log."""
    same: set[str]
    """Users that are as they were."""
    names: set[str]


class Reloader:
    def __init__(self, server: ServerInstance, read: Callable[[], ServerOptions], configured: ServerOptions) -> None:
        """`read` returns the present options; it raises if they are faulty."""
        self._server = server
        self._read = read
        self._configured = configured
        self._waiting: deque[ReloadDone] = deque()
        """Calls for the end of the reload under way, and of those after it."""
        self.applied: Callable[[ServerOptions, ServerOptions], None] = lambda old, new: None
        """Called with the options before and after, for the process around the server."""

    def reload(self) -> None:
        """Read the options again and go by them.

        Raises BadRequestError with the reason, and then everything is as before.
        """
        finish(self._apply(self._checked()))

    def begin(self, done: ReloadDone) -> None:
        """Do the same after the present reload; a thread reads, because there may be a hundred thousand users."""
        self._waiting.append(done)
        if len(self._waiting) == 1:
            self._start()

    def _start(self) -> None:
        loop = asyncio.get_running_loop()

        def read() -> None:
            found: Reload | Exception
            try:
                found = self._checked()
            except Exception as error:  # `_end` reports or raises it on the loop
                found = error
            with suppress(RuntimeError):  # the server has stopped meanwhile
                loop.call_soon_threadsafe(lambda: self._server.broker.jobs.run(self._end(found)))

        threading.Thread(target=read, name="reload", daemon=True).start()

    def _end(self, found: Reload | Exception) -> Steps[None]:
        fault = found if isinstance(found, BadRequestError) else None
        try:
            if isinstance(found, Reload):
                yield from self._apply(found)
            elif fault is None:
                raise found
        except BadRequestError as error:
            fault = error
        finally:
            done = self._waiting.popleft()
            if self._waiting:
                self._start()
        done(fault)

    def _checked(self) -> Reload:
        """Return the options as they are now; raises BadRequestError with the reason against them."""
        server, old = self._server, self._configured
        try:
            new = self._read()
            if new.config_file is None:
                raise BadRequestError("can only reload config when a file is provided using -c or --config")
            new = settled(new, old, {name: server.port_of("monitoring") for name in ("http_port", "https_port")})
            refuse_fixed(old, new)
            size = new.max_storage or server.options.max_storage
            derived = replace(new, max_storage=size, storage_derived=not new.max_storage)
            # Files are read here once: others that are swapped in later must not fail a change that has begun.
            contexts = {kind: TlsContexts(tls) for kind, tls in new.tls_blocks.items()}
            options = self._prepared(derived)
        except (FlagError, NatsctlError, OSError) as error:
            raise BadRequestError(str(error)) from error
        same = {user.name or user.nkey for user in set(_credentials(old)) & set(_credentials(new))}
        names = {name for user in _credentials(new) for name in (user.name, user.nkey) if name}
        return Reload(new, derived, options, contexts, list(changed(old, new)), same, names)

    def _prepared(self, new: ServerOptions) -> BrokerOptions:
        """Return the broker's new options; raises where users cannot be read."""
        server = self._server
        options = broker_options(new, server.server_id, server.port)
        if options.websocket is not None:
            options.websocket.port = server.port_of("websocket")
        if new.operator is not None:  # the JWTs that are known are kept; those of the file are taken over in `_apply`
            now = server.broker.options
            options.auth, options.listener_auth = now.auth, now.listener_auth
        return options

    def _apply(self, reload: Reload) -> Steps[None]:
        server, broker, old = self._server, self._server.broker, self._configured
        new, derived, _, contexts, lines, same, names = reload
        gone = yield from broker.configuring(new.accounts, partial(self._switch, reload))
        yield from broker.reauthorize(same, names)
        for account in gone:
            yield 1
            for session in broker.members(account):
                session.close(CloseReason.CLIENT_CLOSED)
                yield 1
        server.follow_leafnodes(derived, contexts.get("leafnodes"))
        yield from reload_operator_mode(broker, new, server.log)
        self.applied(old, new)
        if closed := (yield from broker.close_excess()):
            server.log.info(f"Closed {closed} connections to fall within max_connections")
        for line in lines:
            server.log.info(line)
        for fault in callout_faults(new):
            server.log.error(fault)
        server.config_load_ns = broker.clock.now_ns()
        for warning in new.config_warnings:
            server.log.warn(warning)
        server.log.info(f"Reloaded server configuration ({new.config_digest})")
        server.wake()

    def _switch(self, reload: Reload) -> None:
        """Go by the new options; the accounts change in the same moment."""
        server, broker, old = self._server, self._server.broker, self._configured
        new, derived, options, contexts, *_ = reload
        self._configured, server.options = new, derived
        broker.long_work.add(_forgetting([*old.users]))
        broker.options = options
        _replace_gates(server, new, contexts)
        server.follow_ocsp(derived)
        _close_unpinned(server, old, new)
        _close_proxied(server, _left(old, new))
        server.shell.write_deadline_s = new.write_deadline_s
        if server.engine is not None:
            _limit_jetstream(server.engine, old, new)


def _forgetting(users: list[User]) -> Iterator[None]:
    while users:
        del users[-SUBS_STEP:]
        yield


def _credentials(options: ServerOptions) -> tuple[User, ...]:
    """Return every user by name or key, the single one among them."""
    return options.users + ((User(options.user, options.password),) if options.user else ())


def _replace_gates(server: ServerInstance, new: ServerOptions, contexts: dict[str, TlsContexts]) -> None:
    if "clients" in server.listener_tls:
        load_tls_connections(new.tls)
        server.listener_tls["clients"].replace(new.tls, new.allow_non_tls, contexts.get("clients"))
    if "websocket" in server.listener_tls and new.websocket is not None:
        server.listener_tls["websocket"].replace(new.websocket.tls, contexts=contexts.get("websocket"))


def _close_unpinned(server: ServerInstance, old: ServerOptions, new: ServerOptions) -> None:
    lists = {kind: pins for kind, pins in _pins(new).items() if pins and pins != _pins(old)[kind]}
    if not lists:
        return
    links = server.leafs.leafs.accepted() if server.leafs is not None else []
    for session in (*server.broker.sessions.values(), *links):
        pins = lists.get(session.connection_type)
        shown = session.tls.peer_certificates[:1] if session.tls is not None else ()
        if pins and not any(certificate.subject_pk_sha256 in pins for certificate in shown):
            session.close(CloseReason.TLS_HANDSHAKE_ERROR)


def _pins(options: ServerOptions) -> dict[str, frozenset[str]]:
    websocket = options.websocket.tls if options.websocket is not None else None
    leafnodes = options.leafnodes.tls if options.leafnodes is not None else None
    blocks = {"STANDARD": options.tls, "WEBSOCKET": websocket, "LEAFNODE": leafnodes, "LEAFNODE_WS": websocket}
    return {kind: tls.pinned_certs if tls is not None else frozenset() for kind, tls in blocks.items()}


def _limit_jetstream(engine: Engine, old: ServerOptions, new: ServerOptions) -> None:
    """Hold streams and consumers to be made to the new limits of the server and of its accounts."""
    options, limits = engine.options, new.jetstream_limits
    for kind, most in zip(engine.usage, (new.max_memory, new.max_storage), strict=True):
        if most:
            engine.usage[kind].limit = most
    options.max_memory = new.max_memory or options.max_memory
    options.max_storage = new.max_storage or options.max_storage
    options.max_ack_pending, options.max_request_batch = limits.max_ack_pending, limits.max_request_batch
    options.max_duplicate_window_ns = limits.max_duplicate_window_ns
    if limits.default_max_consumers:
        options.default_max_consumers = limits.default_max_consumers
    if new.operator is None and old.accounts != new.accounts:
        engine.set_accounts(jetstream_accounts(new))
