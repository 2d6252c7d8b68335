"""`/connz` and `/subsz`: connections, open and closed, a page at a time, and subscriptions.

JWT claims are written here as `/leafz`, `/accountz` and `/varz` show them too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import msgspec

from natsctl.api.codec import InvalidJSONError, read_folded
from natsctl.api.subjects import is_literal, is_valid_subject, overlaps
from natsctl.api.times import Clock, format_time
from natsctl.api.units import SECOND
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT
from natsctl.broker.session import Session, is_leaf
from natsctl.server.monitor.document import Making, go_number, head, present, round_trip, text, uptime, wall_time
from natsctl.server.monitor.query import NO_SUBJECTS, BadRequestError, EndpointOptions, ListingOptions, Query

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.auth.credentials import TlsFacts
    from natsctl.broker.broker import Broker
    from natsctl.broker.jwt.account_registry import ActiveAccount
    from natsctl.broker.leaf.link import LeafLink
    from natsctl.broker.subscription import Subscription
    from natsctl.server.instance import ServerInstance


def subscription_detail(sub: Subscription, account: Account | None = None) -> dict[str, Any]:
    """Return a subscription, with its account if given; internal ones have neither sid nor cid."""
    detail: dict[str, Any] = {}
    if account is not None:
        detail = {"account": account.name, "account_tag": name_tag(account)}
    detail["subject"] = text(sub.subject)
    if sub.queue:
        detail["qgroup"] = text(sub.queue)
    detail |= {"sid": text(sub.sid), "msgs": sub.delivered}
    if sub.max:
        detail["max"] = sub.max
    detail["cid"] = sub.session.cid if sub.session is not None else 0
    return detail


def name_tag(account: Account) -> str:
    return account.config.display_name or account.name


def presentable(token: str) -> str:
    """Return a user's JWT; empty for a bearer token (enough for a login) and for a malformed one."""
    body = payload(token).get("nats")
    return token if isinstance(body, dict) and not body.get("bearer_token") else ""


def payload(token: str) -> dict[str, Any]:
    """Return the unverified claims of a JWT, or an empty dict if it is malformed."""
    from natsctl.api.jwt_claims import UserClaims
    from natsctl.api.jwt_token import JwtError, decode_base64url

    try:
        found = read_folded(decode_base64url(token.split(".")[1]), UserClaims)
    except (IndexError, InvalidJSONError, JwtError):
        return {}
    return found if isinstance(found, dict) else {}


def held_account(server: ServerInstance, name: str) -> ActiveAccount | None:
    if server.options.operator is None:
        return None
    from natsctl.broker.jwt.authenticator import JwtAuthenticator

    auth = server.broker.options.auth
    return auth.book.get(name) if isinstance(auth, JwtAuthenticator) else None


def account_claims(held: ActiveAccount) -> tuple[dict[str, Any], dict[str, Any]]:
    claims = held.claims
    revoked = {who: format_time(when * SECOND) for who, when in sorted(claims.nats.revocations.items())}
    behind: dict[str, Any] = {"tags": list(claims.nats.tags)} if claims.nats.tags else {}
    behind["decoded_jwt"] = payload(held.token)
    if revoked:
        behind["revoked_user"] = revoked
    return {"jwt": held.token, "issuer_key": claims.iss}, behind


def operator_claims(server: ServerInstance) -> dict[str, Any]:
    """Return the claims of the operators' JWTs, as one key; the tokens themselves are not shown."""
    options = server.options.operator
    if options is None or not options.operators:
        return {}
    return {"trusted_operators_claim": [_said(msgspec.to_builtins(claims)) for claims in options.operators]}


def _said(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _said(item) for key, item in value.items() if item}
    return value


class Show(NamedTuple):
    auth: bool
    subscriptions: bool
    detail: bool
    clock: Clock


def client(session: Session, show: Show) -> dict[str, Any]:
    reason = session.close_reason.value if session.stop_ns and session.close_reason is not None else ""
    kind = "websocket" if session.connection_type == "WEBSOCKET" else "nats"
    entry = {"cid": session.cid, "kind": "Client", "type": kind, **_address(session.host, session.port)}
    entry |= _times(session.start_ns, session.last_data_ns, session.stop_ns, reason, session.rtt_ns, show.clock)
    subs = session.subs.values() or session.left_subs
    entry |= _traffic(session) | {"subscriptions": len(session.subs) or session.left_count}
    entry |= present({key: getattr(session, key) for key in ("name", "lang", "version")})
    entry |= _tls(session.tls, show.auth)
    if show.auth:
        entry |= present({"authorized_user": session.login.grant.nkey or session.user, "account": _account(session)})
    if subs and show.detail:
        account = session.account if session.stop_ns else None
        entry["subscriptions_list_detail"] = (subscription_detail(sub, account) for sub in tuple(subs))
    elif subs and show.subscriptions:
        entry["subscriptions_list"] = (text(sub.subject) for sub in tuple(subs))
    if show.auth:
        entry |= _claims(session)
    return entry | proxy(session)


def leaf(peer: LeafLink, show: Show) -> dict[str, Any]:
    count, subjects = len(peer.remote_interest), (text(subject) for subject in peer.subjects())
    entry: dict[str, Any] = {"cid": peer.cid, "kind": "Leafnode", **_address(peer.host, peer.port)}
    entry |= _times(peer.start_ns, peer.last_data_ns, 0, "", peer.rtt_ns, show.clock)
    entry |= _traffic(peer) | {"subscriptions": count}
    if not peer.solicited:
        entry |= present({"name": peer.name, "version": peer.version})
    entry |= _tls(peer.tls, show.auth)
    if show.auth:
        entry |= present({"authorized_user": peer.user, "account": _account(peer)})
    if count and show.detail:
        entry["subscriptions_list_detail"] = (
            {"subject": subject, "sid": subject, "msgs": 0, "cid": peer.cid} for subject in subjects
        )
    elif count and show.subscriptions:
        entry["subscriptions_list"] = subjects
    if show.auth:
        entry["name_tag"] = name_tag(peer.account)
    return entry | proxy(peer)


def proxy(one: Session) -> dict[str, Any]:
    return {"proxy": {"key": one.proxy}} if one.proxy else {}


def _address(host: str, port: int) -> dict[str, Any]:
    return {"ip": host, "port": port}


def _times(start_ns: int, last_data_ns: int, stop_ns: int, reason: str, rtt_ns: int, clock: Clock) -> dict[str, Any]:
    last_ns, end_ns = wall_time(clock, last_data_ns), stop_ns or clock.now_ns()
    times = {"start": format_time(start_ns), "last_activity": format_time(last_ns)}
    if stop_ns:
        times |= {"stop": format_time(stop_ns), "reason": reason}
    return {**times, "rtt": round_trip(rtt_ns), "uptime": uptime(end_ns - start_ns), "idle": uptime(end_ns - last_ns)}


def _traffic(one: Session) -> dict[str, int]:
    names = ("pending_bytes", "in_msgs", "out_msgs", "in_bytes", "out_bytes")
    return {name: getattr(one, name) for name in names}


def _tls(facts: TlsFacts | None, auth: bool) -> dict[str, Any]:
    if facts is None:
        return {}
    shown: dict[str, Any] = {"tls_version": facts.version, "tls_cipher_suite": facts.cipher}
    if auth and facts.peer_certificates:
        shown["tls_peer_certs"] = [
            {
                "subject": peer_certificate.subject,
                "spki_sha256": peer_certificate.subject_pk_sha256,
                "cert_sha256": peer_certificate.cert_sha256,
            }
            for peer_certificate in facts.peer_certificates
        ]
    return {**shown, "tls_first": True} if facts.first else shown


def _account(one: Session) -> str:
    return one.account.name if one.account.name != GLOBAL_ACCOUNT else ""


def _claims(session: Session) -> dict[str, Any]:
    grant = session.login.grant
    shown: dict[str, Any] = {}
    if grant.jwt and (token := presentable(grant.jwt)):
        shown["jwt"] = token
    if grant.issuer:
        shown["issuer_key"] = grant.issuer
    if _account(session) or not session.stop_ns:  # nats-server keeps no tag of a closed client of $G
        shown["name_tag"] = name_tag(session.account)
    if grant.tags:
        shown["tags"] = list(grant.tags)
    return shown


DEFAULT_LIMIT: Final = 1024
"""Default number of connections of a page. Source: nats-server, DefaultConnListSize."""


class ConnState(IntEnum):
    OPEN = 0
    CLOSED = 1
    ALL = 2


_STATES: Final = {
    "": ConnState.OPEN, "open": ConnState.OPEN, "closed": ConnState.CLOSED, "any": ConnState.ALL, "all": ConnState.ALL,
}  # fmt: skip


class ConnzOptions(ListingOptions, kw_only=True):
    QUERY: ClassVar = {"cid": "", "state": "", "filter_subject": ""} | NO_SUBJECTS

    sort: str = ""
    auth: bool = False
    offset: int = 0
    limit: int = 0
    cid: int = 0
    mqtt_client: str = ""
    state: ConnState = ConnState.OPEN
    user: str = ""
    acc: str = ""
    filter_subject: str = ""

    @classmethod
    def of(cls, query: Query) -> ConnzOptions:
        """Return the options of a query. Raises BadRequestError."""
        options = super().of(query)
        options.cid = query.unsigned("cid")
        state = _STATES.get(query.text("state").lower())
        if state is None:
            raise BadRequestError(f"Error decoding state for {query.text('state')}")
        options.state = state
        return options


def connz(server: ServerInstance, options: ConnzOptions) -> Making[dict[str, Any]]:
    """Return a page of connections as an iterator. Raises BadRequestError."""
    _check(options)
    return _connz(server.broker, options)


def _connz(broker: Broker, options: ConnzOptions) -> Making[dict[str, Any]]:
    offset = max(options.offset, 0)
    limit = 1 if options.cid > 0 else options.limit if options.limit > 0 else DEFAULT_LIMIT
    unknown = bool(options.acc) and options.acc not in broker.accounts
    key, descending = _ORDERS[options.sort]
    total, chosen = (0, []) if unknown else (yield from _choose(broker, options))
    page = sorted(chosen, key=partial(key, broker), reverse=descending)[offset : offset + limit]
    show = Show(options.auth, options.subscriptions, options.subscriptions_detail, broker.clock)
    return {
        **head(broker),
        **({"server_id": ""} if unknown else {}),
        "num_connections": len(page),
        "total": total,
        "offset": offset,
        "limit": limit,
        "connections": None
        if unknown
        else (leaf(peer, show) if is_leaf(peer) else client(peer, show) for peer in page),
    }


def _check(options: ConnzOptions) -> None:
    if options.sort and options.sort not in _ORDERS:
        raise BadRequestError(f"invalid sorting option: {options.sort}")
    if options.sort in ("stop", "reason") and options.state != ConnState.CLOSED:
        raise BadRequestError(f"sort by {options.sort} only valid on closed connections")
    if options.filter_subject not in ("", ">") and not options.acc:
        raise BadRequestError("filter by subject only valid with account filtering")


def _choose(broker: Broker, options: ConnzOptions) -> Making[tuple[int, list[Session]]]:
    """Return the number of connections with the state and the account, and the requested ones."""
    opened: list[Session] = []
    ended: list[Session] = []
    account = options.acc
    if options.state in (ConnState.OPEN, ConnState.ALL):
        every = chain(broker.sessions.values(), broker.leafs.values())
        opened = [peer for peer in every if not account or peer.account.name == account]
    if options.state in (ConnState.CLOSED, ConnState.ALL):
        ended = [one for one in broker.closed if not account or one.account.name == account]
    total = len(opened) + len(ended)
    if options.cid > 0:
        opened = [one for one in opened if one.cid == options.cid]
        ended = [] if opened else [one for one in ended if one.cid == options.cid]
    if options.filter_subject not in ("", ">"):
        opened = yield from _subscribed(opened, options.filter_subject.encode())
    if options.mqtt_client:
        return total, []
    return total, [one for one in chain(opened, ended) if not options.user or one.user == options.user]


def _subscribed(peers: Iterable[Session], pattern: bytes) -> Making[list[Session]]:
    found: list[Session] = []
    for peer in peers:
        for number, subject in enumerate(_subjects(peer), 1):
            if overlaps(pattern, subject):
                found.append(peer)
                break
            if not number % LOOKED_AT:
                yield
        yield
    return found


def _subjects(one: Session) -> list[bytes]:
    return [*one.subjects()] if is_leaf(one) else [sub.subject for sub in one.subs.values()]


_Key = Callable[["Broker", "Session"], Any]
_CID: Final[tuple[_Key, bool]] = (lambda broker, one: one.cid, False)
_ORDERS: Final[dict[str, tuple[_Key, bool]]] = {
    "": _CID,
    "cid": _CID,
    "start": _CID,
    "subs": (lambda broker, one: len(one.remote_interest if is_leaf(one) else one.subs or range(one.left_count)), True),
    "pending": (lambda broker, one: one.pending_bytes, True),
    "msgs_to": (lambda broker, one: one.out_msgs, True),
    "msgs_from": (lambda broker, one: one.in_msgs, True),
    "bytes_to": (lambda broker, one: one.out_bytes, True),
    "bytes_from": (lambda broker, one: one.in_bytes, True),
    "last": (lambda broker, one: wall_time(broker.clock, one.last_data_ns), True),
    "idle": (lambda broker, one: -one.last_data_ns, True),
    "uptime": (lambda broker, one: (one.stop_ns or broker.clock.now_ns()) - one.start_ns, False),
    "stop": (lambda broker, one: one.stop_ns, True),
    "reason": (lambda broker, one: getattr(getattr(one, "close_reason", None), "value", ""), False),
    "rtt": (lambda broker, one: one.rtt_ns, True),
}
"""Sort orders of connections: the key, and whether the largest comes first."""


LOOKED_AT: Final = 1024
"""Subscriptions that are looked at between two stops: less than a millisecond."""
FANOUT_ROUTES: Final = 4096
"""Cached routes per account that fan-outs are taken from."""


class SubszOptions(EndpointOptions, kw_only=True):
    QUERY: ClassVar = {"subscriptions": "subs", "account": "acc"}

    offset: int = 0
    limit: int = 0
    subscriptions: bool = False
    account: str = ""
    test: str = ""


def subsz(server: ServerInstance, options: SubszOptions) -> Making[dict[str, Any]]:
    """Return counters of the subscriptions, and a page of them on request, as an iterator. Raises BadRequestError."""
    if options.test and not (is_valid_subject(options.test) and is_literal(options.test)):
        raise BadRequestError(f"invalid test subject, must be valid publish subject: {options.test}")
    return _subsz(server.broker, options)


def _subsz(broker: Broker, options: SubszOptions) -> Making[dict[str, Any]]:
    accounts = [one for one in broker.accounts.values() if options.account in ("", one.name)]
    offset, limit = max(options.offset, 0), options.limit if options.limit > 0 else DEFAULT_LIMIT
    stats = yield from subscription_stats(accounts)
    answer = {**head(broker), **stats, "total": 0, "offset": offset, "limit": limit}
    if options.subscriptions:
        total, found = yield from _found(accounts, options.test.encode())
        answer["total"] = total
        if offset < total:
            for number, _ in enumerate(islice(found, offset), 1):
                if not number % LOOKED_AT:
                    yield
            page = islice(found, limit)
            answer["subscriptions_list"] = (subscription_detail(sub, account) for account, sub in page)
    return answer


def _found(accounts: list[Account], test: bytes) -> Making[tuple[int, Iterator[tuple[Account, Subscription]]]]:
    """Return how many subscriptions there are, and all of them; a subject in `test` is one they must take."""
    if test:
        taking = []
        for account in accounts:
            nodes, _, _ = yield from account.routes.subs.walking(test.split(b"."))
            taking += [(account, node) for node in nodes]
            yield
        found = ((account, sub) for account, node in taking for sub in tuple(node.owners))
        return sum(len(node.owners) for _, node in taking), found
    every = ((account, sub) for account in accounts for sub in account.routes.subs)
    return sum(account.subscriptions for account in accounts), every


def subscription_stats(accounts: Iterable[Account]) -> Making[dict[str, Any]]:
    count = cached = inserts = matched = walks = most = total = looked = 0
    for account in accounts:
        routes = account.routes
        count += routes.subs.count
        inserts += routes.subs.inserted
        cached += len(routes.exact)
        walks += routes.walks
        matched += max(account.gone.plus(account.sessions).in_msgs, routes.walks)
        for clients, queues, handlers in islice(routes.exact.values(), FANOUT_ROUTES):
            fanout = len(clients) + len(queues) + len(handlers)
            most, total, looked = max(most, fanout), total + fanout, looked + 1
        yield
    return {
        "num_subscriptions": count,
        "num_cache": cached,
        "num_inserts": inserts,
        "num_removes": inserts - count,
        "num_matches": matched,
        "cache_hit_rate": go_number((matched - walks) / matched if matched else 0.0),
        "max_fanout": most,
        "avg_fanout": go_number(total / looked if looked else 0.0),
    }
