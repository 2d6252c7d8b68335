"""Who is let in where an operator's JWTs say it.

Theory of operation. A connection shows the JWT of a user, signed by an account, whose JWT is signed by an operator that
is trusted, and signs the nonce with the user's key. The signature of a user's JWT is verified once and its claims kept
by the text, so that clients that reconnect together cost one verification each, of the nonce. Everything that changes
with time or with the account's JWT is looked at anew each time.
"""

from __future__ import annotations

from typing import Final

from natsctl.broker.auth.grant import Credentials, Grant, Refusal
from natsctl.broker.jwt.account_book import AccountBook
from natsctl.broker.jwt.claims import UserClaims, decode
from natsctl.broker.jwt.resolver import Resolver
from natsctl.broker.jwt.token import JwtError, ProxyRequiredError
from natsctl.broker.jwt.trust import Trust
from natsctl.broker.jwt.user_grant import grant_of
from natsctl.broker.jwt.validation import time_faults, user_faults
from natsctl.broker.reasons import CloseReason

SECOND_NS: Final = 1_000_000_000
MAX_KEPT: Final = 4096
"""User JWTs whose verified claims are kept; then all are forgotten."""
MAX_KEPT_CHARS: Final = 8192
"""Longer JWTs are verified each time."""


class JwtAuthenticator:
    """Lets in the users of an operator's accounts."""

    def __init__(self, trust: Trust, resolver: Resolver) -> None:
        self.trust = trust
        self.book = AccountBook(trust, resolver)
        self._kept: dict[str, UserClaims] = {}

    @property
    def required(self) -> bool:
        """Return None: every client needs a JWT."""
        return True

    @property
    def wants_nonce(self) -> bool:
        """Users prove that they have the key of their JWT."""
        return True

    @property
    def default(self) -> Grant | None:
        """Return None: every client needs a JWT."""
        return None

    def authenticate(self, credentials: Credentials) -> Grant | Refusal:
        """Return what the client is let in as, or why not."""
        try:
            return self._grant(credentials)
        except ProxyRequiredError as fault:
            return Refusal(str(fault), reason=CloseReason.PROXY_REQUIRED)
        except JwtError as fault:
            return Refusal(str(fault))

    def still_holds(self, grant: Grant, credentials: Credentials) -> bool:
        """Return whether the client would be let in as the same user now."""
        answer = self.authenticate(credentials)
        return isinstance(answer, Grant) and (answer.user, answer.account) == (grant.user, grant.account)

    def user_claims(self, token: str) -> UserClaims:
        """Return the claims of a user's JWT that is well formed and signed; raises JwtError."""
        known = self._kept.get(token)
        if known is not None:
            return known
        claims = decode(token, UserClaims)
        for fault in user_faults(claims):
            raise JwtError(f"User JWT no longer valid: {fault}")
        if len(token) <= MAX_KEPT_CHARS:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[token] = claims
        return claims

    def _grant(self, credentials: Credentials) -> Grant:
        token = credentials.options.jwt
        try:
            user = self.user_claims(token)
        except JwtError:
            if not self.trust.sentinel:
                raise
            token = self.trust.sentinel
            user = self.user_claims(token)
        for fault in time_faults(user, credentials.now_ns // SECOND_NS):
            raise JwtError(f"User JWT no longer valid: {fault}")
        if user.nats.proxy_required:
            raise ProxyRequiredError
        if self.trust.pinned is not None and user.account not in self.trust.pinned:
            raise JwtError(f"Account {user.account} not listed as operator pinned account")
        held = self.book.look_up(user.account, credentials.now_ns)
        external = held.claims.nats.authorization.auth_users
        if external and user.sub not in external:
            raise JwtError("authorization callouts are not served")
        return grant_of(user, held, credentials, token)
