"""Facts about the server: INFO, and the answer to `$SYS.REQ.USER.INFO`."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

import msgspec

from natsctl.api.times import format_time
from natsctl.api.versions import API_LEVEL
from natsctl.broker.auth.permissions import permissions_json

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker
    from natsctl.broker.broker_options import Rng
    from natsctl.broker.session import Session

SECOND_NS = 1_000_000_000
SERVER_PREFIX = 13 << 3
"""First byte of a server's public nkey: makes its text begin with N."""


JETSTREAM_FLAGS = 0b111
"""Capability bits in system answers where JetStream runs: it does, it takes snapshots in pieces, accounts may own raft
groups."""

FEATURE_FLAGS = {
    "js_ack_fc_v2": False,
    "js_api_reply_v2": False,
    "js_raft_delete_range": True,
    "js_snapshot_sources": False,
}
"""Forms of subjects and records that a server of this version uses by default."""


def make_server_id(rng: Rng) -> str:
    """Return a well-formed public server nkey of random bits."""
    raw = bytes([SERVER_PREFIX]) + rng.getrandbits(256).to_bytes(32, "big")
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode()


def info_json(broker: Broker, session: Session, *, connect_info: bool = False, lame_duck: bool = False) -> bytes:
    """Return INFO's body for one session, keys in nats-server's order."""
    options = broker.options
    websocket = options.websocket if session.kind == "websocket" else None
    info: dict[str, object] = {
        "server_id": broker.server_id,
        "server_name": broker.server_name,
        "version": options.version,
        "proto": 1,
        "go": options.go,
        "host": websocket.host if websocket else options.host,
        "port": websocket.port if websocket else options.port,
        "headers": options.headers,
    }
    info.update((key, True) for key, value in _wanted_of_clients(broker, session).items() if value)
    info["max_payload"] = session.max_payload
    if options.jetstream:
        info["jetstream"] = True
    info["client_id"] = session.cid
    info["client_ip"] = session.host
    if session.login.nonce:
        info["nonce"] = session.login.nonce.decode()
    if options.domain:
        info["domain"] = options.domain
    urls = options.ws_connect_urls if websocket else options.connect_urls
    if urls:
        info["connect_urls"] = urls
    if lame_duck:
        info["ldm"] = True
    if connect_info:
        info["connect_info"] = True
        info["remote_account"] = session.account.name
        if session.account is broker.system_account:
            info["acc_is_sys"] = True
    info["api_lvl"] = API_LEVEL
    return msgspec.json.encode(info)


def _wanted_of_clients(broker: Broker, session: Session) -> dict[str, bool]:
    """Return what a client has to bring, by its listener: the one for this process itself is always in clear."""
    options = broker.options
    found = {"auth_required": session.login.required}
    if session.kind == "inprocess":
        return found
    websocket = options.websocket if session.kind == "websocket" else None
    first = session.tls is not None and session.tls.first
    return found | {
        "tls_required": websocket.tls if websocket else options.tls_required or first,
        "tls_verify": options.tls_verify,
        "tls_available": websocket.tls if websocket else options.tls_available,
    }


def server_info(broker: Broker) -> dict[str, object]:
    """Return who says what the system account hears, keys in nats-server's order; each call counts one message."""
    options = broker.options
    server: dict[str, object] = {"name": broker.server_name, "host": options.host, "id": broker.server_id}
    if options.domain:
        server["domain"] = options.domain
    server |= {
        "ver": options.version,
        **({"tags": options.tags} if options.tags else {}),
        "feature_flags": FEATURE_FLAGS,
        "jetstream": options.jetstream,
        "flags": JETSTREAM_FLAGS if options.jetstream else 0,
        "seq": broker.next_event_seq(),
        "time": format_time(broker.clock.now_ns()),
    }
    return server


def user_info_json(broker: Broker, session: Session) -> bytes:
    """Return the answer to `$SYS.REQ.USER.INFO`, keys in nats-server's order."""
    account, grant = session.account, session.login.grant
    data: dict[str, object] = {"user": session.user, "account": account.name}
    data["account_name"] = account.config.display_name or account.name
    if grant.name_tag:
        data["user_name"] = grant.name_tag
    if grant.permissions is not None:
        data["permissions"] = permissions_json(grant.permissions)
    if grant.expires_ns:
        left_s = (grant.expires_ns - broker.clock.now_ns()) // SECOND_NS
        data["expires"] = max(left_s, 0) * SECOND_NS
    return msgspec.json.encode({"server": server_info(broker), "data": data})
