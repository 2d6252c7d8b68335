"""Descriptions of the server and its clients: INFO, the answer to `$SYS.REQ.USER.INFO`, the header `Nats-Request-Info`.

The header describes the sender of a request to a service of another account; advisories describe it in the same way.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

import msgspec

from natsctl.api import headers
from natsctl.api.codec import encode
from natsctl.api.times import format_time
from natsctl.api.units import SECOND
from natsctl.api.versions import API_LEVEL
from natsctl.broker.auth.permissions import permissions_json

if TYPE_CHECKING:
    from natsctl.api.advisories import ClientInfo
    from natsctl.broker.broker import Broker
    from natsctl.broker.broker_options import Rng
    from natsctl.broker.session import Session


SERVER_PREFIX = 13 << 3
"""First byte of a server's public nkey (its text begins with N)."""


JETSTREAM_FLAGS = 0b111
"""`flags` in system answers where JetStream runs: JetStreamEnabled, BinaryStreamSnapshot, AccountNRG.

Source: nats-server, server/events.go.
"""

FEATURE_FLAGS = {
    "js_ack_fc_v2": False,
    "js_api_reply_v2": False,
    "js_raft_delete_range": True,
    "js_snapshot_sources": False,
}
"""Defaults of the version that `version` names. Source: nats-server, server/feature_flags.go."""


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
    info.update((key, True) for key, value in _login_and_tls(broker, session).items() if value)
    info["max_payload"] = session.max_payload
    if options.jetstream:
        info["jetstream"] = True
    info["client_id"] = session.cid
    if session.kind != "proxied":
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
    if broker.callouts is not None:
        info["xkey"] = broker.callouts.xkey
    return msgspec.json.encode(info)


def _login_and_tls(broker: Broker, session: Session) -> dict[str, bool]:
    """Return INFO's fields for login and TLS, by the session's listener; connections inside the process have no TLS."""
    options = broker.options
    login_and_tls = {"auth_required": session.login.required}
    if session.kind == "inprocess":
        return login_and_tls
    websocket = options.websocket if session.kind == "websocket" else None
    first = session.tls is not None and session.tls.first
    return login_and_tls | {
        "tls_required": websocket.tls if websocket else options.tls_required or first,
        "tls_verify": options.tls_verify,
        "tls_available": websocket.tls if websocket else options.tls_available,
    }


def server_info(broker: Broker) -> dict[str, object]:
    """Return the field `server` of system events and answers, keys in nats-server's order.

    Each call takes the next event sequence.
    """
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
        left_s = (grant.expires_ns - broker.clock.now_ns()) // SECOND
        data["expires"] = max(left_s, 0) * SECOND
    return msgspec.json.encode({"server": server_info(broker), "data": data})


def client_kind(session: Session) -> tuple[str, str]:
    """Return `kind` and `client_type` of a connection."""
    if session.connection_type.startswith("LEAFNODE"):
        return "Leafnode", ""
    return "Client", "websocket" if session.connection_type == "WEBSOCKET" else "nats"


def requester_info(server: str, account: str, origin: Session | None, detailed: bool) -> ClientInfo:
    """Return the description of a publisher: its account and round trip time, and everything else if `detailed`.

    Without `origin` the publisher is JetStream in `account`.
    """
    from natsctl.api.advisories import ClientInfo

    if origin is None:
        return ClientInfo(acc=account, server=server, kind="JetStream") if detailed else ClientInfo(acc=account)
    if not detailed:
        return ClientInfo(acc=origin.account.name, rtt=origin.rtt_ns)
    grant = origin.login.grant
    kind, client_type = client_kind(origin)
    return ClientInfo(
        start=format_time(origin.start_ns),
        host=origin.host,
        id=origin.cid,
        acc=origin.account.name,
        user=origin.user,
        name=origin.name,
        lang=origin.lang,
        ver=origin.version,
        rtt=origin.rtt_ns,
        server=server,
        jwt=grant.jwt,
        issuer_key=grant.issuer,
        name_tag=grant.name_tag,
        tags=list(grant.tags),
        kind=kind,
        client_type=client_type,
    )


def with_info(header: bytes, info: ClientInfo) -> bytes:
    """Return a header block with `info` as its `Nats-Request-Info`, replacing any earlier one."""
    block = headers.remove(header, headers.REQUEST_INFO) if header else header
    return b"%bNats-Request-Info: %b\r\n\r\n" % (block[:-2] if block else b"NATS/1.0\r\n", encode(info))
