"""Reading the configuration again while the server runs.

Everything is read and checked first: the file and the flags over it, what differs and needs a restart, certificates,
users. Only then anything changes, so that a bad file changes nothing. `told` is what the operator said last, before
anything was derived from the machine or from the ports that were found free; differences are between two of those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from natsctl.api.errors import NatsctlError
from natsctl.broker.auth.reauthorization import close_excess, reauthorize
from natsctl.broker.auth.static_auth import User
from natsctl.broker.reasons import CloseReason
from natsctl.server.auth.operator_mode import reload_operator_mode
from natsctl.server.broker_setup import broker_options, jetstream_accounts
from natsctl.server.monitor.refused import BadRequestError
from natsctl.server.options import ServerOptions
from natsctl.server.process.goflags import FlagError
from natsctl.server.reload.changes import changed, refuse_fixed, settled
from natsctl.server.tls.gate import GateContexts, gate_contexts

if TYPE_CHECKING:
    from natsctl.broker.options import BrokerOptions
    from natsctl.jetstream.engine import Engine
    from natsctl.server.instance import ServerInstance


class Reloader:
    """What a server was told last, and how it is told anew."""

    def __init__(self, server: ServerInstance, read: Callable[[], ServerOptions], told: ServerOptions) -> None:
        """`read` returns the options as they are now; it raises what is wrong with them."""
        self._server = server
        self._read = read
        self._told = told
        self.applied: Callable[[ServerOptions, ServerOptions], None] = lambda old, new: None
        """Called with the options before and after, for what the process does beside the server."""

    def reload(self) -> None:
        """Read the options again and go by them.

        Raises BadRequestError with the reason, and then everything is as before.
        """
        server, old = self._server, self._told
        try:
            new = self._read()
            if new.config_file is None:
                raise BadRequestError("can only reload config when a file is provided using -c or --config")
            new = settled(new, old, {name: server.port_of("monitoring") for name in ("http_port", "https_port")})
            refuse_fixed(old, new)
            size = new.max_storage or server.options.max_storage
            derived = replace(new, max_storage=size, storage_derived=not new.max_storage)
            contexts = _contexts(new)
            broker = self._prepared(derived)
        except (FlagError, NatsctlError, OSError) as error:
            raise BadRequestError(str(error)) from error
        self._apply(old, new, derived, broker, contexts)

    def _prepared(self, new: ServerOptions) -> BrokerOptions:
        """Return the broker's new options; raises where users can not be read."""
        server = self._server
        options = broker_options(new, server.server_id, server.port)
        if options.websocket is not None:
            options.websocket.port = server.port_of("websocket")
        if new.operator is not None:  # the JWTs that are known are kept; those of the file are taken over in `_apply`
            now = server.broker.options
            options.auth, options.listener_auth = now.auth, now.listener_auth
        return options

    def _apply(
        self,
        old: ServerOptions,
        new: ServerOptions,
        derived: ServerOptions,
        options: BrokerOptions,
        contexts: dict[str, GateContexts],
    ) -> None:
        server, broker = self._server, self._server.broker
        lines = list(changed(old, new))
        self._told, server.options = new, derived
        broker.options = options
        _replace_gates(server, new, contexts)
        _close_unpinned(server, old, new)
        server.set_write_deadline(new.write_deadline_s)
        gone = broker.configure(new.accounts)
        if server.engine is not None:
            _limit_jetstream(server.engine, old, new)
        same = set(_credentials(old)) & set(_credentials(new))
        reauthorize(broker, {user.name or user.nkey for user in same}, _names(new))
        for session in [session for account in gone for session in broker.members(account)]:
            session.close(CloseReason.CLIENT_CLOSED)
        server.follow_leafnodes(derived, contexts.get("leafnodes"))
        reload_operator_mode(broker, new, server.log)
        self.applied(old, new)
        if closed := close_excess(broker):
            server.log.info(f"Closed {closed} connections to fall within max_connections")
        for line in lines:
            server.log.info(line)
        server.config_load_ns = broker.clock.now_ns()
        server.log.info(f"Reloaded server configuration ({new.config_digest})")
        server.wake()


def _credentials(options: ServerOptions) -> tuple[User, ...]:
    """Return every user by name or key, the single one among them."""
    return options.users + ((User(options.user, options.password),) if options.user else ())


def _names(options: ServerOptions) -> set[str]:
    return {name for user in _credentials(options) for name in (user.name, user.nkey) if name}


def _contexts(new: ServerOptions) -> dict[str, GateContexts]:
    """Return the TLS of each kind of listener that has any; raises TlsFileError.

    The files are read here once: others that are swapped in afterwards must not fail what has begun to change.
    """
    blocks = {
        "clients": new.tls,
        "websocket": new.websocket.tls if new.websocket is not None else None,
        "leafnodes": new.leafnodes.tls if new.leafnodes is not None else None,
    }
    return {kind: gate_contexts(tls) for kind, tls in blocks.items() if tls is not None}


def _replace_gates(server: ServerInstance, new: ServerOptions, contexts: dict[str, GateContexts]) -> None:
    """Put the certificates, which were read without a fault, before new connections."""
    if "clients" in server.gates:
        server.gates["clients"].replace(new.tls, new.allow_non_tls, contexts.get("clients"))
    if "websocket" in server.gates and new.websocket is not None:
        server.gates["websocket"].replace(new.websocket.tls, contexts=contexts.get("websocket"))


def _close_unpinned(server: ServerInstance, old: ServerOptions, new: ServerOptions) -> None:
    """Close who has come with a certificate that is pinned no longer, where the list of those has changed."""
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
    """Return the digests that each kind of listener asks for."""
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
