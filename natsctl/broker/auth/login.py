"""Authentication of a session: CONNECT, the authenticator's answer, and the move into an account.

Theory of operation. Where users exist, a session carries out nothing before its user is known: the first line has to be
CONNECT, unless there is a user for clients without credentials. An answer may take long: the shell works it out in a
thread or the authenticator in steps (`Pending`), or a service is asked for it (`Delegation`). Until then what arrives
is kept here, in its order, and carried out when `decide` brings the answer. A later CONNECT authenticates again and
ends the subscriptions that were there. After a reload clients that are logged in are authenticated again, and limited
as the new configuration says; clients accepted by a service stay, because its input has not changed. An answer that was
asked for before a reload and comes after it lets nobody in: the new authenticator is asked."""

from __future__ import annotations

import base64
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from natsctl.api.codec import go_quote
from natsctl.broker.auth.credentials import (
    Answer,
    Authenticator,
    CertificateChain,
    ConnectOptions,
    Credentials,
    DecidedLater,
    Delegation,
    Grant,
    LoginCertificate,
    LoginRefusal,
    Pending,
    parse_connect,
    proxy_of,
)
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT
from natsctl.broker.refusals import CloseReason
from natsctl.wire.ops import OK_LINE, Op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from natsctl.api.subject_index import Steps
    from natsctl.broker.session import Session


NONCE_BITS: Final = 88
"""Random bits of a nonce; nats-server's 11 bytes."""
MUCH_HELD_BYTES: Final = 64 << 10
"""Bytes that may arrive during a pending login before the shell stops reading."""
MAX_HELD_BYTES: Final = 8 << 20
"""Maximum bytes that may arrive: one read of the shell may be unpacked to much more."""
ACCOUNT_FULL: Final = "maximum account active connections exceeded"
REDACTED: Final = "[REDACTED]"
"""Name of a client that has shown a token."""


class Login:
    __slots__ = (
        "_asked", "_asked_again", "_held", "_held_ops", "_session", "authenticated", "certificate", "chain",
        "connected", "cookies", "credentials", "grant", "nonce", "options", "pending", "proxy",
    )  # fmt: skip

    def __init__(self, session: Session) -> None:
        self._session = session
        auth = session.broker.options.auth_of(session.connection_type)
        self._asked = auth
        """The authenticator that `pending` is from."""
        self._asked_again: Callable[[Grant | LoginRefusal | Delegation], None] | None = None
        """Takes the answer, if the client is logged in already and `pending` says whether it stays."""
        self.connected = False
        """A CONNECT has been accepted."""
        self.authenticated = auth is None
        self.options = ConnectOptions()
        """Options that the client has sent so far."""
        self.cookies: dict[str, str] = {}
        """Fields from a WebSocket request, used if CONNECT leaves them empty."""
        self.certificate: LoginCertificate | None = None
        """The client's verified certificate; the shell sets it when the handshake is done."""
        self.chain = CertificateChain()
        """The client's certificates; the shell keeps them if a service may see them."""
        self.grant = Grant("", GLOBAL_ACCOUNT)
        self.credentials: Credentials | None = None
        self.pending: Pending | Delegation | None = None
        """Answer that the shell works out, or a service gives, and that is brought to `decide`."""
        self._held = bytearray()
        self._held_ops: list[Op] = []
        self.proxy = ""
        """Key of the trusted proxy that passes the client on; empty: none."""
        self.nonce = b""
        signed = auth is not None and auth.wants_nonce
        if signed or session.broker.options.trusted_proxies:
            raw = session.broker.secret_rng.getrandbits(NONCE_BITS).to_bytes(NONCE_BITS // 8, "big")
            self.nonce = base64.urlsafe_b64encode(raw).rstrip(b"=")

    @property
    def authenticator(self) -> Authenticator | None:
        """The authenticator of the listener now: a reload replaces it, also between INFO and CONNECT."""
        return self._session.broker.options.auth_of(self._session.connection_type)

    @property
    def required(self) -> bool:
        """Return whether INFO requires the client to authenticate."""
        auth = self.authenticator
        return auth is not None and auth.required

    @property
    def timeout_ns(self) -> int:
        """Time that the client has for its CONNECT."""
        return self._session.broker.options.auth_timeout_of(self._session.connection_type)

    @property
    def user(self) -> str:
        """User that the client is logged in as, or claims to be."""
        options = self.options
        return self.grant.user or options.nkey or options.user or (REDACTED if options.auth_token else "")

    @property
    def label(self) -> str:
        """Client's name in log lines next to its account; empty if not given."""
        options, grant = self.options, self.grant
        if grant.jwt:
            return f"jwt:{grant.user}"
        if grant.nkey or options.nkey:
            return f"nkey:{grant.nkey or options.nkey}"
        if grant.user or options.user:
            return f"user:{grant.user or options.user}"
        return "token" if options.auth_token else ""

    @property
    def claim(self) -> str:
        """Client's name in the log by its credentials; empty without any."""
        options = self.options
        for kind, name in (("Nkey", options.nkey), ("User", options.user), ("Token", options.auth_token and REDACTED)):
            if name:
                return f"{kind} {go_quote(name)}"
        return ""

    # --- what arrives meanwhile

    def hold(self, chunk: bytes, ops: Iterable[Op] = ()) -> None:
        """Keep received data until `decide`."""
        self._held_ops += ops
        before = len(self._held)
        self._held += chunk
        if before < MUCH_HELD_BYTES <= len(self._held):
            self._session.broker.pending_logins.append(self._session)
        if len(self._held) > MAX_HELD_BYTES:
            self.refuse(LoginRefusal("too much was sent before the answer to CONNECT"))

    def decide(self, answer: Answer) -> None:
        """Apply the answer, and handle the operations that arrived meanwhile; or wait for a pending answer."""
        session = self._session
        if self._asked_again is not None:
            self._decide_again(self._asked_again, answer)
            return
        self.pending, answer = None, self._prepared(answer)
        if isinstance(answer, Pending):
            if session.close_reason is None:
                self._await(answer)
                session.broker.login_decided(session)
            return
        if (
            self._asked is not self.authenticator
            and not isinstance(answer, LoginRefusal)
            and session.close_reason is None
        ):
            again = self._authenticate()  # the answer is of users that a reload has replaced
            if isinstance(again, Pending):
                self._await(again)
                session.broker.login_decided(session)
                return
            answer = again
        if isinstance(answer, Delegation) and session.close_reason is None:
            self._await(answer)
            if self.pending is not None:
                return
        if session.close_reason is None and not isinstance(answer, Delegation):
            self._answered(answer)
        self._release()

    def _release(self) -> None:
        """Handle the input that has arrived meanwhile."""
        session = self._session
        ops, self._held_ops = self._held_ops, []
        chunk, self._held = bytes(self._held), bytearray()
        if session.close_reason is None:
            session.resume(iter(ops), chunk)
        session.broker.login_decided(session)

    def _await(self, answer: Pending | Delegation) -> None:
        """Wait for an answer, unless the account is full that the client has to enter first."""
        session = self._session
        if isinstance(answer, Delegation) and answer.entered and not session.has_room(answer.entered):
            self._reject(CloseReason.MAX_ACCOUNT_CONNECTIONS_EXCEEDED, ACCOUNT_FULL)
            return
        self.pending, self._asked = answer, self.authenticator
        if isinstance(answer, Delegation):
            if session.broker.callouts is None:
                self.decide(LoginRefusal("no callouts are made"))
            else:
                session.broker.callouts.ask(session, answer)
        elif answer.decided is None:
            session.broker.pending_logins.append(session)
        else:
            answer.decided.bring = partial(self._bring, answer)

    def _prepared(self, answer: Answer) -> Answer:
        """Return an answer that can be applied at once, or what brings it when many permissions are indexed."""
        if not isinstance(answer, Grant) or answer.permissions is None or not answer.permissions.needs_steps:
            return answer
        permissions, later = answer.permissions, DecidedLater()

        def work() -> Steps[None]:
            yield from permissions.prepare()
            later.decide(answer)

        self._session.broker.jobs.run(work())
        return Pending(lambda: answer, decided=later)

    def _bring(self, pending: Pending, answer: Grant | LoginRefusal | Delegation) -> None:
        if self.pending is pending:
            self.decide(answer)

    def abandon(self) -> None:
        """Wait for no answer any more: the connection has ended."""
        if isinstance(self.pending, Delegation) and self._session.broker.callouts is not None:
            self._session.broker.callouts.forget(self._session)
        self.pending = None
        self._held, self._held_ops = bytearray(), []

    # --- CONNECT

    def connect(self, body: bytes) -> None:
        """Handle a CONNECT: accept the client, close, or wait for the answer."""
        session = self._session
        options = parse_connect(body, self.options)
        if options is None:
            session.notice("parse error: malformed CONNECT")
            session.close(CloseReason.PROTOCOL_VIOLATION)
            return
        for field, value in self.cookies.items():
            if not getattr(options, field):
                setattr(options, field, value)
        if self.connected:
            session.drop_subscriptions()
        self.options = options
        session.set_client_info(options)
        proxy = proxy_of(options, self.nonce, session.broker.options.trusted_proxies)
        self.proxy = proxy if isinstance(proxy, str) else ""
        self.credentials = self._shown()
        self._follow(proxy if isinstance(proxy, LoginRefusal) else self._authenticate())

    def _authenticate(self) -> Answer:
        auth = self.authenticator
        return auth.authenticate(self.credentials or self._shown()) if auth is not None else Grant("", GLOBAL_ACCOUNT)

    def _follow(self, answer: Answer) -> None:
        answer = self._prepared(answer)
        if isinstance(answer, (Pending, Delegation)):
            self._await(answer)
        else:
            self._answered(answer)

    def _shown(self) -> Credentials:
        session = self._session
        return Credentials(
            self.options, self.nonce, self.certificate, session.connection_type, session.host,
            session.broker.clock.now_ns(), self.proxy,
        )  # fmt: skip

    def _answered(self, answer: Grant | LoginRefusal) -> None:
        session, options = self._session, self.options
        if isinstance(answer, LoginRefusal):
            self.refuse(answer)
        elif self.credentials is None:
            self._admit_silent(answer)
        elif options.account or options.new_account:
            self.refuse(LoginRefusal("accounts cannot be chosen by clients"))
        elif self.admit(answer):
            if options.protocol not in (0, 1):
                self._reject(CloseReason.BAD_CLIENT_PROTOCOL_VERSION, "invalid client protocol")
            elif options.no_responders and not (options.headers and session.broker.options.headers):
                self._reject(CloseReason.NO_RESPONDERS_REQUIRES_HEADERS, "no responders requires headers support")
            else:
                self._begin(options)

    def _reject(self, reason: CloseReason, text: str) -> None:
        self._session.notice(text)
        self._session.close(reason, text)

    def _begin(self, options: ConnectOptions) -> None:
        session = self._session
        first, self.connected = not self.connected, True
        session.apply(options)
        if first:
            # The time from INFO to CONNECT is a first estimate of the round trip, until a PING measures it.
            session.rtt_ns = max(session.broker.clock.now_ns() - session.start_ns, 0)
            session.broker.event_listener.connected(session)
        if session.verbose:
            session.write(OK_LINE)

    def admit_silent(self) -> None:
        """Log in a client that does not begin with CONNECT, as the user for such clients, or close."""
        answer = self._authenticate()
        if isinstance(answer, Pending) or (isinstance(answer, Delegation) and not answer.named):
            answer = LoginRefusal()
        self._follow(answer)

    def _admit_silent(self, grant: Grant) -> None:
        if self.admit(grant):
            self.connected = True
            self._session.broker.event_listener.connected(self._session)

    def refuse(self, refusal: LoginRefusal) -> None:
        """Close the connection and say why, to the client and to the log."""
        session = self._session
        if session.close_reason is None:
            session.notice(" - ".join(filter(None, ("authentication error", self.claim))))
        session.close(refusal.reason, refusal.text)
        session.broker.event_listener.refused(session, refusal)

    def admit(self, grant: Grant) -> bool:
        """Log the client in as `grant`; False if its account is full, or it may subscribe to nothing: both close it."""
        session = self._session
        if not session.enter(grant):
            self._reject(CloseReason.MAX_ACCOUNT_CONNECTIONS_EXCEEDED, ACCOUNT_FULL)
            return False
        self.grant = grant
        if grant.assigned is not None:
            self.options = _as_assigned(self.options, grant)
        if not self.authenticated:
            self.authenticated = True
            session.start_timers()
        session.timers.expire_at(grant.expires_ns)
        return not session.close_if_full()

    def forget_secrets(self) -> None:
        """Keep only the client's name after the connection has closed."""
        options = self.options
        token = REDACTED if options.auth_token else ""
        self.options = ConnectOptions(user=options.user, nkey=options.nkey, auth_token=token)
        self.credentials, self.cookies, self.chain = None, {}, CertificateChain()
        self.abandon()

    # --- reload

    def ask_again(self, then: Callable[[Grant | LoginRefusal | Delegation], None]) -> None:
        """Call `then` with the answer that the client would get now.

        If a hash has to be compared, the client's later input waits for the result.
        """
        if self.pending is not None:  # of the users before: `decide` asks again
            self._asked_again = self._asked_again and then
            return
        answer = self._answer_now()
        if isinstance(answer, Pending) and answer.then is None and answer.decided is None:
            self.pending, self._asked, self._asked_again = answer, self.authenticator, then
            self._session.broker.pending_logins.append(self._session)
        else:
            then(answer.now() if isinstance(answer, Pending) else answer)

    def _answer_now(self) -> Answer:
        auth = self.authenticator
        if auth is None:
            return Grant("", GLOBAL_ACCOUNT)
        if self.credentials is None:
            return auth.default or LoginRefusal()
        return auth.authenticate(replace(self.credentials, now_ns=self._session.broker.clock.now_ns()))

    def _decide_again(self, then: Callable[[Grant | LoginRefusal | Delegation], None], answer: Answer) -> None:
        self.pending = self._asked_again = None
        if self._session.close_reason is None:
            if self._asked is not self.authenticator:
                self.ask_again(then)
            else:
                then(answer.now() if isinstance(answer, Pending) else answer)
        if self.pending is None:
            self._release()
        else:
            self._session.broker.login_decided(self._session)


def _as_assigned(options: ConnectOptions, grant: Grant) -> ConnectOptions:
    """Return the options as the service that let the client in says who it is."""
    assert grant.assigned is not None
    if grant.assigned.name:
        return replace(options, jwt="", user=grant.assigned.name, nkey="", auth_token="")
    return replace(options, jwt="")
