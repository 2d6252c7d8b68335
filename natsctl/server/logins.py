"""Logins: the users of each kind of listener, and bcrypt in a thread of its own while others are served.

Answers that a service gives (authentication callouts) come without a thread: broker/jwt/callout_requests.py.

One thread, because passwords are no reason to take a second core from clients that are logged in; it is used by logins
only, so that guessing keeps nothing else waiting. Hosts take turns, so that a guesser with a hundred connections keeps
others waiting for a comparison or two and not for a hundred. A connection that ends gives up its place in its host's
queue; all queues together are therefore never longer than there are connections.

Users are shared by all listeners; the rest of the options may differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Final, TypedDict

from natsctl.broker.auth.credentials import Authenticator, Delegation, Grant, LoginRefusal, Pending
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from natsctl.broker.auth.static_auth import StaticAuthenticator
    from natsctl.broker.session import Session
    from natsctl.server.options import ServerOptions


Answer = Grant | LoginRefusal | Delegation


class Logins:
    """The comparisons of hashed passwords that sessions wait for; hosts take turns."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str = "natsctl-logins") -> None:
        """Bring each session its answer on the loop; `name` is the thread's."""
        self._name = name
        self._loop = loop
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: dict[str, dict[Session, None]] = {}
        """Sessions by host, both in the order of their turns."""
        self._running: Session | None = None
        self._future: Future[Answer] | None = None

    def begin(self, session: Session) -> bool:
        """Queue the comparison of a session, if it has one; return False if it waits for its answer already."""
        pending = session.login.pending
        if session is self._running or session in self._waiting.get(session.host, ()):
            return False
        if isinstance(pending, Delegation):
            return False
        if pending is not None:
            self._waiting.setdefault(session.host, {})[session] = None
            self._next()
        return True

    def _next(self) -> None:
        while self._running is None and self._waiting:
            host = next(iter(self._waiting))
            sessions = self._waiting.pop(host)
            session = next(iter(sessions))
            del sessions[session]
            if sessions:
                self._waiting[host] = sessions
            pending = session.login.pending
            if isinstance(pending, Pending):
                if self._thread is None:
                    from concurrent.futures import ThreadPoolExecutor

                    self._thread = ThreadPoolExecutor(1, self._name)
                self._running, self._future = session, self._thread.submit(pending.work)
                self._future.add_done_callback(partial(self._done, session))

    def _done(self, session: Session, future: Future[Answer]) -> None:
        """Pass the result to the loop; runs in the thread, or where the future was cancelled."""
        if not future.cancelled():
            self._loop.call_soon_threadsafe(self._bring, session, future)

    def _bring(self, session: Session, future: Future[Answer]) -> None:
        if self._future is not future:
            return
        self._running = self._future = None
        fault, pending = future.exception(), session.login.pending
        if fault is not None or not isinstance(pending, Pending):
            session.login.decide(LoginRefusal(f"the answer failed: {fault}"))
        else:
            session.login.decide(pending.answer(future.result()))
        self._next()

    def forget(self, session: Session) -> None:
        sessions = self._waiting.get(session.host)
        if sessions is not None and session in sessions:
            del sessions[session]
            if not sessions:
                del self._waiting[session.host]
        elif session is self._running and self._future is not None:
            self._future.cancel()
            self._running = self._future = None
            self._next()

    def stop(self) -> None:
        self._waiting.clear()
        if self._running is not None:
            self.forget(self._running)
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None


FETCHERS: Final = 4
"""Threads that fetch accounts from elsewhere: a slow answer holds up the hosts that share its thread."""


class LoginThreads:
    """The threads for logins: one compares passwords, the others fetch accounts from other servers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._comparisons = Logins(loop)
        self._fetches = [Logins(loop, f"natsctl-fetch-{number}") for number in range(FETCHERS)]

    def begin(self, session: Session) -> bool:
        """Queue the work of a session, if it has any; return False if that is queued or running already."""
        pending = session.login.pending
        if isinstance(pending, Pending) and pending.decided is not None:
            return False
        if not isinstance(pending, Pending) or pending.then is None:
            return self._comparisons.begin(session)
        return self._fetches[hash(session.host) % FETCHERS].begin(session)

    def forget(self, session: Session) -> None:
        for logins in (self._comparisons, *self._fetches):
            logins.forget(session)

    def stop(self) -> None:
        for logins in (self._comparisons, *self._fetches):
            logins.stop()


def authenticator(options: ServerOptions) -> Authenticator | None:
    if options.operator is not None:
        from natsctl.server.operator_mode import jwt_authenticator

        if (jwts := jwt_authenticator(options)) is not None:
            return jwts
    return _delegating(options, _configured(options))


def _delegating(options: ServerOptions, known: StaticAuthenticator | None) -> Authenticator | None:
    """Return an authenticator of configured users, one that asks a service where the configuration wants that."""
    if options.auth_callout is None:
        return known
    from natsctl.broker.jwt.callout import CalloutAuthenticator

    accounts = {account.name for account in options.accounts}
    accounts |= {GLOBAL_ACCOUNT, options.system_account or SYSTEM_ACCOUNT}
    return CalloutAuthenticator(known, options.auth_callout, accounts.__contains__)


def callout_faults(options: ServerOptions) -> Iterator[str]:
    """Yield faults of the accounts and users of a callout that do not prevent the start."""
    callout = options.auth_callout
    if callout is None or options.operator is not None:
        return
    accounts = {account.name for account in options.accounts}
    if callout.account not in accounts | {GLOBAL_ACCOUNT, options.system_account or SYSTEM_ACCOUNT}:
        yield f'Authorization callout account "{callout.account}" not valid'
    single = (options.user, options.websocket.user if options.websocket is not None else "")
    known = {name for user in options.users for name in (user.name, user.nkey)} | set(single)
    for name in callout.auth_users:
        if not name or name not in known:
            yield f'Authorization callout user "{name}" not valid'


@cache
def _anyone() -> tuple[str, str]:
    """Return a name and a password that nobody can guess, the same ones after a reload."""
    import secrets

    return secrets.token_hex(16), secrets.token_hex(16)


def _configured(options: ServerOptions) -> StaticAuthenticator | None:
    if not (options.users or options.user or options.token):
        return None
    from natsctl.broker.auth.static_auth import StaticAuthenticator, User

    users = options.users + ((User(options.user, options.password),) if options.user else ())
    if users and not options.no_auth_user and all(user.account == SYSTEM_ACCOUNT for user in users):
        # A configuration with only system users is not meant to lock all others out.
        name, password = _anyone()
        known = (*users, User(name, password))
        return StaticAuthenticator("", known, name, hidden_default=True, **_mapping(options, "STANDARD"))
    proxied = options.proxy_required and not options.users
    return StaticAuthenticator(
        options.token, users, options.no_auth_user, proxy_required=proxied, **_mapping(options, "STANDARD")
    )


def websocket_authenticator(options: ServerOptions, main: Authenticator | None) -> Authenticator | None:
    """Return the authenticator of the WebSocket listener; `main` is the authenticator of all others.

    Its own user, token or no_auth_user replace the server's. INFO asks for credentials there even if a
    client without credentials is accepted.
    """
    websocket = options.websocket
    if websocket is None or options.operator is not None:
        return main
    from natsctl.broker.auth.static_auth import StaticAuthenticator, User

    if websocket.user or websocket.token or websocket.no_auth_user:
        token, silent = websocket.token, websocket.no_auth_user
        single = (User(websocket.user, websocket.password),) if websocket.user else ()
    elif main is None:
        return None
    else:
        token, silent = options.token, options.no_auth_user
        single = (User(options.user, options.password),) if options.user else ()
    users = options.users + single
    proxied = options.proxy_required and not options.users
    known = StaticAuthenticator(
        token, users, silent, hidden_default=True, proxy_required=proxied, **_mapping(options, "WEBSOCKET")
    )
    return _delegating(options, known)


class _Mapping(TypedDict):
    map_certificates: bool
    mapped_types: frozenset[str]


def _mapping(options: ServerOptions, kind: str) -> _Mapping:
    blocks = {"STANDARD": options.tls, "WEBSOCKET": options.websocket.tls if options.websocket else None}
    mapped = frozenset(kind for kind, tls in blocks.items() if tls is not None and tls.verify_and_map)
    return {"map_certificates": kind in mapped, "mapped_types": mapped}
