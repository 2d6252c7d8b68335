"""How the client of one session becomes somebody: CONNECT, the authenticator's answer, and the move into an account."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from natsctl.broker.account import GLOBAL_ACCOUNT
from natsctl.broker.connect_options import ConnectOptions, parse_connect
from natsctl.broker.grant import Certificate, Credentials, Grant, Refusal
from natsctl.broker.permit import Permit
from natsctl.broker.reasons import CloseReason
from natsctl.wire.encode import OK_LINE

if TYPE_CHECKING:
    from natsctl.broker.session import Session

NONCE_BITS: Final = 88
"""Random bits of a nonce; the reference's 11 bytes."""


class Login:
    """The credentials and the grant of one session."""

    __slots__ = ("_session", "authenticated", "certificate", "connected", "credentials", "grant", "nonce")

    def __init__(self, session: Session) -> None:
        self._session = session
        auth = session.broker.options.auth
        self.connected = False
        """A CONNECT has been accepted."""
        self.authenticated = auth is None
        self.certificate: Certificate | None = None
        """The client's verified certificate; the shell sets it when the handshake is done."""
        self.grant = Grant("", GLOBAL_ACCOUNT)
        self.credentials: Credentials | None = None
        self.nonce = b""
        if auth is not None and auth.wants_nonce:
            raw = session.broker.rng.getrandbits(NONCE_BITS).to_bytes(NONCE_BITS // 8, "big")
            self.nonce = base64.urlsafe_b64encode(raw).rstrip(b"=")

    def connect(self, body: bytes) -> None:
        """Take a CONNECT: let the client in, or close."""
        session = self._session
        options = parse_connect(body)
        if options is None:
            session.close(CloseReason.PROTOCOL_VIOLATION)
            return
        if not self.connected and not self._authenticate(options):
            return
        if options.protocol not in (0, 1):
            session.close(CloseReason.BAD_CLIENT_PROTOCOL_VERSION, "invalid client protocol")
            return
        if options.no_responders and not options.headers:
            reason = CloseReason.NO_RESPONDERS_REQUIRES_HEADERS
            session.close(reason, "no responders requires headers support")
            return
        first, self.connected = not self.connected, True
        session.apply(options)
        if first:
            session.broker.onlooker.connected(session)
        if session.verbose:
            session.write(OK_LINE)

    def _authenticate(self, options: ConnectOptions) -> bool:
        broker = self._session.broker
        self.credentials = Credentials(
            options, self.nonce, self.certificate, self._session.connection_type, self._session.host,
            broker.clock.now_ns(),
        )  # fmt: skip
        auth = broker.options.auth
        answer = auth.authenticate(self.credentials) if auth is not None else Grant("", GLOBAL_ACCOUNT)
        if isinstance(answer, Refusal):
            self.refuse(answer)
        elif options.account:
            self.refuse(Refusal("accounts cannot be chosen by clients"))
        else:
            self.admit(answer)
        return self.authenticated and self._session.close_reason is None

    def refuse(self, refusal: Refusal) -> None:
        """Close the connection and say why."""
        self._session.close(refusal.reason, refusal.text)
        self._session.broker.onlooker.refused(self._session, refusal)

    def admit(self, grant: Grant) -> None:
        """Let the client in as `grant`; what was subscribed before moves into the account."""
        session = self._session
        self.grant = grant
        session.permit = Permit(grant.permissions, session.broker.clock) if grant.permissions is not None else None
        session.move(session.broker.account(grant.account))
        if not self.authenticated:
            self.authenticated = True
            session.wait_for_first_ping()

    def still_holds(self) -> bool:
        """Return whether the client would be let in as the same now; asked after the users changed."""
        auth = self._session.broker.options.auth
        if auth is None:
            return self.grant == Grant("", GLOBAL_ACCOUNT)
        if self.credentials is None:
            return auth.default == self.grant
        credentials = replace(self.credentials, now_ns=self._session.broker.clock.now_ns())
        return auth.still_holds(self.grant, credentials)
