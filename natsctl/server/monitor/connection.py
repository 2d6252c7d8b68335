"""One connection as connz shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from natsctl.api.times import format_time
from natsctl.broker.account import GLOBAL_ACCOUNT
from natsctl.server.monitor.ages import round_trip, uptime, wall_time
from natsctl.server.monitor.claims import presentable
from natsctl.server.monitor.document import text
from natsctl.server.monitor.subscription_detail import name_tag, subscription_detail

if TYPE_CHECKING:
    from natsctl.broker.leaf.peer import LeafPeer
    from natsctl.broker.options import Clock
    from natsctl.broker.session import Session
    from natsctl.broker.tls_facts import TlsFacts


class Show(NamedTuple):
    """What is shown of each connection."""

    auth: bool
    subscriptions: bool
    detail: bool
    clock: Clock


def client(session: Session, show: Show) -> dict[str, Any]:
    """Return a client's connection, open or closed."""
    reason = session.close_reason.value if session.stop_ns and session.close_reason is not None else ""
    kind = "websocket" if session.connection_type == "WEBSOCKET" else "nats"
    entry = {"cid": session.cid, "kind": "Client", "type": kind, **_address(session.host, session.port)}
    entry |= _times(session.start_ns, session.last_data_ns, session.stop_ns, reason, session.rtt_ns, show.clock)
    subs = session.subs.values() or session.left_subs
    entry |= _traffic(session) | {"subscriptions": len(session.subs) or session.left_count}
    entry |= {key: value for key in ("name", "lang", "version") if (value := getattr(session, key))}
    entry |= _tls(session.tls, show.auth)
    if show.auth:
        entry |= {key: value for key, value in (("authorized_user", _user(session)), _account(session)) if value}
    if subs and show.detail:
        account = session.account if session.stop_ns else None
        entry["subscriptions_list_detail"] = [subscription_detail(sub, account) for sub in subs]
    elif subs and show.subscriptions:
        entry["subscriptions_list"] = [text(sub.subject) for sub in subs]
    return entry | _claims(session) if show.auth else entry


def leaf(peer: LeafPeer, show: Show) -> dict[str, Any]:
    """Return a leaf node's connection."""
    subjects = [text(subject) for subject in peer.subjects()]
    entry: dict[str, Any] = {"cid": peer.cid, "kind": "Leafnode", **_address(peer.host, peer.port)}
    entry |= _times(peer.start_ns, peer.last_data_ns, 0, "", peer.rtt_ns, show.clock)
    entry |= _traffic(peer) | {"subscriptions": len(subjects)}
    if peer.name:
        entry["name"] = peer.name
    entry |= _tls(peer.tls, show.auth)
    if show.auth:
        entry |= {key: value for key, value in (("authorized_user", peer.user), _account(peer)) if value}
    if subjects and show.detail:
        entry["subscriptions_list_detail"] = [
            {"subject": subject, "sid": subject, "msgs": 0, "cid": peer.cid} for subject in subjects
        ]
    elif subjects and show.subscriptions:
        entry["subscriptions_list"] = subjects
    return entry | {"name_tag": name_tag(peer.account)} if show.auth else entry


def _address(host: str, port: int) -> dict[str, Any]:
    return {"ip": host, "port": port}


def _times(start_ns: int, last_data_ns: int, stop_ns: int, reason: str, rtt_ns: int, clock: Clock) -> dict[str, Any]:
    last_ns, end_ns = wall_time(clock, last_data_ns), stop_ns or clock.now_ns()
    times = {"start": format_time(start_ns), "last_activity": format_time(last_ns)}
    if stop_ns:
        times |= {"stop": format_time(stop_ns), "reason": reason}
    return {**times, "rtt": round_trip(rtt_ns), "uptime": uptime(end_ns - start_ns), "idle": uptime(end_ns - last_ns)}


def _traffic(one: Session | LeafPeer) -> dict[str, int]:
    names = ("pending_bytes", "in_msgs", "out_msgs", "in_bytes", "out_bytes")
    return {name: getattr(one, name) for name in names}


def _tls(facts: TlsFacts | None, auth: bool) -> dict[str, Any]:
    if facts is None:
        return {}
    shown: dict[str, Any] = {"tls_version": facts.version, "tls_cipher_suite": facts.cipher}
    if auth and facts.peer_certificates:
        shown["tls_peer_certs"] = [
            {"subject": one.subject, "spki_sha256": one.subject_pk_sha256, "cert_sha256": one.cert_sha256}
            for one in facts.peer_certificates
        ]
    return {**shown, "tls_first": True} if facts.first else shown


def _account(one: Session | LeafPeer) -> tuple[str, str]:
    return "account", one.account.name if one.account.name != GLOBAL_ACCOUNT else ""


def _user(session: Session) -> str:
    """Return who the client says it is; a token stays a secret."""
    grant, credentials = session.login.grant, session.login.credentials
    if grant.nkey or grant.user or credentials is None:
        return grant.nkey or grant.user
    return "[REDACTED]" if credentials.options.auth_token else ""


def _claims(session: Session) -> dict[str, Any]:
    """Return what the user's JWT says; one that is all its bearer needs is left out."""
    grant = session.login.grant
    shown: dict[str, Any] = {}
    if grant.jwt and (token := presentable(grant.jwt)):
        shown["jwt"] = token
    if grant.issuer:
        shown["issuer_key"] = grant.issuer
    shown["name_tag"] = name_tag(session.account)
    if grant.tags:
        shown["tags"] = list(grant.tags)
    return shown
