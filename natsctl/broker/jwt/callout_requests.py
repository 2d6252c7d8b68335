"""Requests of authentication callouts, and the responses to them.

Theory of operation. For each delegated login a request goes out on `$SYS.REQ.USER.AUTH` of the service's account, with
a user key that is made for it and an inbox of its own; the session waits. The first response on that inbox is queued
and the inbox ends; responses are checked in later turns, in steps (`broker.jobs`), so that a flood of them, or long
ones, hold nobody up. A session that gets none within the authentication timeout is refused, as is one with a response
that is not as it should be; a connection that ends takes its request with it. There are never more requests than
connections that wait, and the bytes of queued responses are bounded.

Texts and their order are nats-server's. Source: auth_callout.go.
"""

from __future__ import annotations

import base64
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from natsctl.api.codec import BYTES_PER_COST, go_quote
from natsctl.api.jwt_callout import (
    AUDIENCE,
    KIND,
    AuthorizationRequest,
    AuthorizationRequestClaims,
    ClientInfo,
    ClientTls,
    ConnectFields,
    ServerId,
    encode_request,
)
from natsctl.api.jwt_claims import AuthorizationResponseClaims, UserClaims, decoding
from natsctl.api.jwt_token import MAX_TOKEN_BYTES, NEWEST_VERSION, JwtError, ProxyRequiredError
from natsctl.api.jwt_validation import CHECKED_AT_ONCE, may_connect_for_ns, response_faults, time_faults, user_checks
from natsctl.api.nkey_pairs import NONCE_BYTES, SEED_BYTES, CurvePair, SealError, SigningPair, public_text
from natsctl.api.subject_index import Steps
from natsctl.api.units import SECOND
from natsctl.broker.auth.credentials import AccountPlacement, CalloutError, Delegation, Grant, LoginRefusal
from natsctl.broker.info import client_kind
from natsctl.broker.jwt.callout import CALLOUT_SUBJECT, without_callout
from natsctl.broker.jwt.user_grant import end_ns, known_types
from natsctl.broker.refusals import CloseReason
from natsctl.broker.timers import NEVER_NS

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker
    from natsctl.broker.session import Session
    from natsctl.broker.subscription import Subscription


XKEY_HEADER: Final = b"NATS/1.0\r\nNats-Server-Xkey: %b\r\n\r\n"
INBOX: Final = b"$SYS._INBOX."
"""Prefix of the response subjects; a service needs permission to publish on them."""
INBOX_BYTES: Final = 16
"""Random bytes of an inbox: whoever may publish below `INBOX` must not guess it."""
INBOX_HEAD: Final = 8
"""Characters of its first token, as nats-server's inboxes have two."""
JWT_PREFIX: Final = b"eyJ"
"""Beginning of a response in clear."""
MAX_QUEUED_BYTES: Final = 8 << 20
"""Bytes of responses that may wait to be checked; logins with more are refused."""
REDACTED: Final = "[REDACTED]"


class _Question(NamedTuple):
    nkey: str
    delegation: Delegation
    inbox: Subscription | None
    due_ns: int


class Callouts:
    """The outstanding requests of one broker, and responses that wait to be checked."""

    def __init__(self, broker: Broker, key: SigningPair, curve: CurvePair) -> None:
        """Sign with `key`, the server's own, and open data sealed for `curve`."""
        self._broker = broker
        self._key = key
        self._curve = curve
        self._asked: dict[Session, _Question] = {}
        self._queued_bytes = 0
        broker.callouts = self
        broker.on_tick.append(self._tick)
        broker.alarms.append(self._alarm_ns)

    @property
    def xkey(self) -> str:
        """Public curve key that services may seal their responses for."""
        return self._curve.public

    @property
    def waiting(self) -> int:
        return len(self._asked)

    # --- requests

    def ask(self, session: Session, delegation: Delegation) -> None:
        """Ask the service that a login is delegated to; the answer goes to `session.login.decide`."""
        broker, terms = self._broker, delegation.terms
        account = broker.accounts.get(terms.account)
        if account is None:
            named = go_quote(terms.account)
            self._refuse(session, delegation, f"No valid account {named} for auth callout request: account missing")
            return
        nkey = public_text("user", self._random(SEED_BYTES))
        token = base64.b32encode(self._random(INBOX_BYTES)).rstrip(b"=")
        inbox = b"%b%b.%b" % (INBOX, token[:INBOX_HEAD], token[INBOX_HEAD:])
        heard = account.subscribe(inbox, partial(self._heard, session))
        due_ns = broker.clock.monotonic_ns() + broker.options.auth_timeout_ns
        self._asked[session] = _Question(nkey, delegation, heard, due_ns)
        broker.tick_by(due_ns)
        body, header = self._request(session, delegation, nkey), b""
        if terms.xkey:
            body = self._curve.seal(body, terms.xkey, self._random(NONCE_BYTES))
            header = XKEY_HEADER % self._curve.public.encode()
        account.publish(CALLOUT_SUBJECT.encode(), inbox, header, body)

    def _random(self, size: int) -> bytes:
        return self._broker.secret_rng.getrandbits(8 * size).to_bytes(size, "big")

    def _request(self, session: Session, delegation: Delegation, nkey: str) -> bytes:
        broker, terms = self._broker, delegation.terms
        options, now_s = broker.options, broker.clock.now_ns() // SECOND
        server = ServerId(
            name=broker.server_name,
            host=options.host,
            id=broker.server_id,
            version=options.version,
            tags=list(options.tags),
            xkey=self._curve.public if terms.xkey else "",
        )
        claims = AuthorizationRequestClaims(
            aud=AUDIENCE,
            exp=now_s + options.auth_timeout_ns // SECOND,
            jti=base64.b32encode(self._random(SEED_BYTES)).rstrip(b"=").decode(),
            iat=now_s,
            iss=self._key.public,
            sub=terms.subject,
            nats=AuthorizationRequest(
                server_id=server,
                user_nkey=nkey,
                client_info=_client_info(session, delegation),
                connect_opts=msgspec.convert(delegation.connect, ConnectFields, from_attributes=True),
                client_tls=_client_tls(session),
                type=KIND,
                version=NEWEST_VERSION,
            ),
        )
        return encode_request(claims, self._key)

    # --- the end of a request

    def forget(self, session: Session) -> None:
        self._take(session)

    def _take(self, session: Session) -> _Question | None:
        question = self._asked.pop(session, None)
        if question is not None and question.inbox is not None:
            question.inbox.account.unsubscribe(question.inbox)
        return question

    def _tick(self) -> None:
        """Refuse requests that have waited too long."""
        now_ns = self._broker.clock.monotonic_ns()
        for session in [session for session, question in self._asked.items() if question.due_ns <= now_ns]:
            question = self._take(session)
            if question is not None:
                account, came = question.delegation.terms.account, question.delegation.came
                session.login.decide(LoginRefusal("no response in time", account=account, cause="", came=came))
                self._broker.log_warning(
                    f"Authorization callout response not received in time on account {go_quote(account)}"
                )

    def _alarm_ns(self) -> int:
        return min((question.due_ns for question in self._asked.values()), default=NEVER_NS)

    def _refuse(self, session: Session, delegation: Delegation, text: str, *, proxy: bool = False) -> None:
        """Refuse a client for a reason that the operator, and the owner of the service's account, are to read."""
        text = text[:1].upper() + text[1:]
        reason = CloseReason.PROXY_REQUIRED if proxy else CloseReason.AUTHENTICATION_VIOLATION
        account, came = delegation.terms.account, delegation.came
        session.login.decide(LoginRefusal(text, reason=reason, account=account, cause=text, came=came))
        self._broker.log_warning(text)

    # --- responses

    def _heard(
        self, session: Session, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> None:
        """Queue the response to a request; no second one is heard."""
        question = self._take(session)
        if question is None:
            return
        if len(payload) > MAX_TOKEN_BYTES + MAX_TOKEN_BYTES // 16:  # the JWT inside may be as long as one can be
            payload = payload[: MAX_TOKEN_BYTES + MAX_TOKEN_BYTES // 16]
        if self._queued_bytes + len(payload) > MAX_QUEUED_BYTES:
            self._refuse(session, question.delegation, "too many auth callout responses wait")
            return
        self._queued_bytes += len(payload)
        self._broker.jobs.add(self._judging(session, question, payload))

    def _judging(self, session: Session, question: _Question, payload: bytes) -> Steps[None]:
        try:
            if not _waits(session, question):
                return
            grant = yield from self._grant(session, question, payload)
            if _waits(session, question):
                session.login.decide(grant)
        except ProxyRequiredError as fault:
            self._refuse(session, question.delegation, str(fault), proxy=True)
        except (CalloutError, JwtError) as fault:
            self._refuse(session, question.delegation, str(fault))
        except Exception:  # a fault closes only its own session
            session.close(CloseReason.AUTHENTICATION_VIOLATION)
            raise
        finally:
            self._queued_bytes -= len(payload)

    def _grant(self, session: Session, question: _Question, payload: bytes) -> Steps[Grant]:
        """Return the grant of a response; raises CalloutError or JwtError."""
        delegation, now_ns = question.delegation, self._broker.clock.now_ns()
        terms, account = delegation.terms, go_quote(delegation.terms.account)
        user = yield from self._user(question, payload, now_ns)
        if user.nats.proxy_required and not session.login.proxy:
            raise ProxyRequiredError
        for fault in chain(time_faults(user, now_ns // SECOND), user_checks(user)):
            if not fault:
                yield CHECKED_AT_ONCE
                continue
            raise CalloutError(f"Error validating user JWT: {fault}")
        if user.sub != question.nkey:
            raise CalloutError(
                f"Expected authorized user of {go_quote(question.nkey)} but got {go_quote(user.sub)} "
                f"on account {account}"
            )
        place = yield from terms.place(user, now_ns)
        stay_ns = may_connect_for_ns(place.rules.times or [], place.rules.times_location, now_ns)
        if stay_ns is None:
            session.notice("Outside connect times")
            raise CalloutError(f"authorized user on account {account} outside of valid connect times")
        _check_connection_type(session, place, account)
        if place.rules.proxy_required and not session.login.proxy:
            raise ProxyRequiredError
        return _grant_of(user, place, delegation, end_ns(user, now_ns, stay_ns))

    def _user(self, question: _Question, payload: bytes, now_ns: int) -> Steps[UserClaims]:
        """Return the user in a response to a request; raises CalloutError or JwtError."""
        terms = question.delegation.terms
        response, sealed = yield from self._response(terms.xkey, terms.account, payload)
        for fault in (*response_faults(response), *time_faults(response, now_ns // SECOND)):
            raise CalloutError(f"authorization response had validation errors: {fault}")
        if response.sub != question.nkey:
            raise CalloutError("auth callout violation: auth callout response is not for expected user")
        if response.aud != self._broker.server_id:
            raise CalloutError("auth callout violation: auth callout response is not for server")
        if not sealed:  # only the service can have sealed it
            terms.check_signer(response)
        if response.nats.error:
            raise CalloutError(f"auth callout service returned an error: {response.nats.error}")
        return (yield from decoding(response.nats.jwt, UserClaims))

    def _response(self, xkey: str, account: str, payload: bytes) -> Steps[tuple[AuthorizationResponseClaims, bool]]:
        """Return the claims of a response, and whether it was sealed; raises CalloutError or JwtError."""
        if not payload:
            raise CalloutError(f'auth callout violation: "no reason supplied" on account {go_quote(account)}')
        sealed = bool(xkey) and not payload.startswith(JWT_PREFIX)
        if sealed:
            try:
                payload = self._curve.open(payload, xkey)
            except SealError as fault:
                text = f"error decrypting auth callout response on account {go_quote(account)}: {fault}"
                raise CalloutError(text) from None
            yield len(payload) // BYTES_PER_COST
        return (yield from decoding(payload.decode("utf-8", "replace"), AuthorizationResponseClaims)), sealed


def _waits(session: Session, question: _Question) -> bool:
    return session.close_reason is None and session.login.pending is question.delegation


def _check_connection_type(session: Session, place: AccountPlacement, account: str) -> None:
    """Raise CalloutError where the user may not use this kind of connection."""
    named = place.rules.allowed_connection_types
    if not named:
        return
    allowed = known_types(named)
    if not allowed:
        raise CalloutError(f"authorized user on account {account} using invalid connection type")
    if session.connection_type not in allowed:
        raise CalloutError(f"authorized user on account {account} not allowed to use connection type")


def _grant_of(user: UserClaims, place: AccountPlacement, delegation: Delegation, expires_ns: int) -> Grant:
    """Return the grant of a user; like nats-server, with the limits of the account and none of the JWT's."""
    shown = delegation.connect
    grant = Grant(
        user=user.name or shown.nkey or shown.user,
        account=place.account,
        permissions=place.permissions,
        expires_ns=expires_ns,
        issuer=place.issuer,
        name_tag=delegation.name_tag,
        tags=delegation.tags,
        assigned=user,
    )
    return without_callout(grant) if place.account == delegation.terms.account else grant


def _client_info(session: Session, delegation: Delegation) -> ClientInfo:
    connect = delegation.connect
    kind, client_type = client_kind(session)
    shown = connect.nkey or connect.user or delegation.user or (REDACTED if connect.auth_token else "")
    return ClientInfo(
        host=session.host,
        id=session.cid,
        user=shown,
        name=connect.name,
        tags=list(delegation.tags),
        name_tag=delegation.name_tag,
        kind=kind,
        type=client_type,
        nonce=delegation.nonce.decode() if connect.sig else "",
    )


def _client_tls(session: Session) -> ClientTls | None:
    if session.tls is None:
        return None
    chain = session.login.chain
    pems = [_pem(certificate) for certificate in chain.certificates]
    shown = {"verified_chains": [pems]} if chain.verified else {"certs": pems}
    return ClientTls(version=session.tls.version, cipher=session.tls.cipher, **(shown if pems else {}))


def _pem(der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = (text[start : start + 64] for start in range(0, len(text), 64))
    return "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""])
