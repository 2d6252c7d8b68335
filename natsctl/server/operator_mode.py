"""Operator mode of a running server: the resolver of account JWTs, the authenticator, and their log lines.

Theory of operation. The resolver is a folder, one file `<public key>.jwt` each. The folder is the truth and is this
server's own; the accounts in it are remembered in order of use, for the cache's limit. A JWT is written next to its
place, synced and renamed, so a file is one JWT or another. Names are public keys and nothing else, so they never become
other paths. Another program may still write into the folder, and no file there may stop the server: only regular
files are read, links to such among them, and none is opened in a way that waits; one that cannot be read or removed
counts as missing.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from natsctl.api.codec import go_quote
from natsctl.api.errors import UsageError
from natsctl.api.jwt_claims import AccountBody, AccountClaims, OperatorClaims, decode
from natsctl.api.jwt_claims import AccountLimits as ClaimedLimits
from natsctl.api.jwt_token import MAX_TOKEN_BYTES, JwtError, is_public
from natsctl.api.jwt_validation import account_faults, time_faults
from natsctl.api.subject_index import Steps, finish
from natsctl.broker.jwt.account_registry import (
    AccountRegistry,
    AccountStoreError,
    MemoryResolver,
    Resolver,
    Trust,
    trust_of,
)
from natsctl.broker.jwt.authenticator import BrokerAccountSink, JwtAuthenticator
from natsctl.broker.jwt.claim_requests import ClaimRequests
from natsctl.server.files import replace_file
from natsctl.server.log.lines import Log
from natsctl.server.options import DirectoryOptions, OperatorOptions, ServerOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from natsctl.api.account import AccountLimits
    from natsctl.broker.broker import Broker
    from natsctl.server.url_resolver import UrlResolver


SUFFIX: Final = ".jwt"
DELETED: Final = ".deleted"
MAX_WAKE_S: Final = 30.0
"""Time of a start for fetching accounts; the rest is loaded with the first login."""
FILE_MODE: Final = 0o600
"""Mode of the files that are written. Source: nats-server, defaultFilePerms."""


class JwtDirectory:
    def __init__(self, options: DirectoryOptions) -> None:
        """Open the folder, created if missing; raises OSError."""
        self._options = options
        options.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._used: dict[str, float] = dict.fromkeys(self._found(), time.time())

    def reload(self) -> None:
        """Record the files that exist now; JWTs are read on request."""
        before = self._used
        now_s = time.time()
        self._used = {account: before.get(account, now_s) for account in self._found()}

    def _found(self) -> list[str]:
        """Return the accounts that there are files of, the oldest first."""
        found: list[tuple[float, str]] = []
        for path in self._options.folder.glob(f"*{SUFFIX}"):
            if is_public(path.stem, "account"):
                with suppress(OSError):  # a broken link, or a file that was just removed
                    status = path.stat()
                    if stat.S_ISREG(status.st_mode):
                        found.append((status.st_mtime, path.stem))
        return [account for _, account in sorted(found)]

    @property
    def full(self) -> bool:
        return self._options.full

    @property
    def may_delete(self) -> bool:
        """True where operators may delete accounts; a cache may always forget them."""
        return not self.full or self._options.deleting != "no"

    def fetch(self, account: str) -> str | None:
        if not is_public(account, "account") or (account in self._used and self._drop_if_old(account)):
            return None  # an unannounced file is read anyway, as by nats-server
        try:
            return _read(self._path(account)).decode() or None
        except (OSError, UnicodeDecodeError):
            return None

    def save(self, account: str, token: str) -> bool:
        """Keep a JWT and return whether it is another than before; raises AccountStoreError."""
        if not is_public(account, "account"):
            raise AccountStoreError("invalid public key")
        known = self._used.pop(account, None) is not None
        if known:
            self._used[account] = time.time()
            if self.fetch(account) == token:
                return False
        elif self.full and 0 < self._options.limit <= len(self._used):
            raise AccountStoreError("jwt store is full")
        self._write(self._path(account), token)
        self._used[account] = time.time()
        while 0 < self._options.limit < len(self._used):  # of a cache: the least recently used ones
            self._forget(next(iter(self._used)))
        return True

    def delete(self, account: str) -> None:
        """Forget an account, if it is there; raises AccountStoreError."""
        path = self._path(account)
        try:
            if self._options.deleting == "rename":
                path.rename(path.with_name(path.name + DELETED))
            else:
                path.unlink()
        except FileNotFoundError:
            pass
        except OSError as fault:
            raise AccountStoreError(f"{fault.strerror}: {account}") from fault
        self._used.pop(account, None)

    def accounts(self) -> list[str]:
        return sorted(account for account in tuple(self._used) if not self._drop_if_old(account))

    def _path(self, account: str) -> Path:
        return self._options.folder / f"{account}{SUFFIX}"

    def _drop_if_old(self, account: str) -> bool:
        """Forget an account that was not sent for longer than a cache keeps it."""
        ttl_s = self._options.ttl_s
        if not ttl_s or time.time() - self._used[account] <= ttl_s:
            return False
        self._forget(account)
        return True

    def _forget(self, account: str) -> None:
        """Remove the file of an account that a cache keeps no longer; one that stays is found again by a reload."""
        with suppress(OSError):
            self._path(account).unlink(missing_ok=True)
        del self._used[account]

    def _write(self, path: Path, token: str) -> None:
        try:
            replace_file(path, token.encode(), mode=FILE_MODE)
        except OSError as fault:
            raise AccountStoreError(f"{fault.strerror}: {path.name}") from fault


def _read(path: Path) -> bytes:
    """Return a regular file of at most the length of a JWT, b"" for anything else; raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_TOKEN_BYTES:
            return b""
        return file.read(MAX_TOKEN_BYTES + 1)


def trust(options: ServerOptions) -> Trust:
    operator = options.operator
    if operator is None:
        return Trust(system_account=options.system_account)
    return trust_of(
        operator.operators, operator.trusted_keys, options.system_account, operator.pinned, operator.sentinel
    )


def jwt_authenticator(options: ServerOptions) -> JwtAuthenticator | None:
    """Return the authenticator of users with JWTs, or None if users are configured.

    Raises OSError where the resolver's folder cannot be used.
    """
    trusted = trust(options)
    if options.operator is None or not trusted.keys:
        return None
    if options.operator.account_url:
        remote = _url_resolver(options.operator)
        return JwtAuthenticator(trusted, remote, remote)
    return JwtAuthenticator(trusted, _resolver(options.operator))


def _url_resolver(operator: OperatorOptions) -> UrlResolver:
    from natsctl.server.tls.contexts import client_context
    from natsctl.server.url_resolver import UrlResolver

    return UrlResolver(operator.account_url, client_context(operator.url_tls))


def _resolver(operator: OperatorOptions) -> Resolver:
    if operator.directory is None:
        return MemoryResolver(dict(operator.preload))
    store = JwtDirectory(operator.directory)
    for account, token in operator.preload:
        if store.fetch(account) is None:
            try:
                store.save(account, token)
            except AccountStoreError as fault:
                raise UsageError(f'preload account error for "{account}": {fault}') from None
    return store


def start_operator_mode(broker: Broker, log: Log) -> dict[str, AccountLimits] | None:
    """Bind the broker's authenticator for JWTs to it, and load the system account.

    Returns the limits of accounts that have JetStream whatever they claim: none; None if accounts are not an
    operator's. Raises UsageError without a system account.
    """
    auth = broker.options.auth
    if not isinstance(auth, JwtAuthenticator):
        return None
    BrokerAccountSink(broker, auth)
    resolver = auth.book.resolver
    if auth.remote is not None:
        _begin_remote(auth, log)
    store = resolver if isinstance(resolver, JwtDirectory) else None
    if auth.trust.system_account:
        try:
            finish(auth.book.look_up(auth.trust.system_account, broker.clock.now_ns()))
        except JwtError as fault:
            if store is None and auth.remote is None:
                raise UsageError(f"error resolving system account: {fault}") from None
            if auth.trust.strict:  # its own key would have to sign, but signs no accounts
                raise UsageError("Can't set system account: account validation failed") from None
            auth.book.provide(_first_system_account(auth.trust), broker.clock.now_ns())
    ClaimRequests(broker, auth.book, store, log.error).listen()
    return {}


def _begin_remote(auth: JwtAuthenticator, log: Log) -> None:
    """Check that a resolver elsewhere answers, and fetch the system account from it. Raises UsageError."""
    from natsctl.server.url_resolver import FetchError, UrlResolver

    if isinstance(auth.remote, UrlResolver):
        auth.remote.warn = log.warn
        try:
            auth.remote.get("")
        except FetchError as fault:
            raise UsageError(str(fault)) from None
        if auth.trust.system_account:
            auth.remote.take(auth.remote.fetch_all(auth.trust.system_account, ()))


def wake_accounts(broker: Broker, names: Iterable[str], log: Log) -> None:
    auth = broker.options.auth
    end_s = time.monotonic() + MAX_WAKE_S
    if isinstance(auth, JwtAuthenticator):
        for name in names:
            if auth.remote is not None and time.monotonic() < end_s:  # nothing is served yet that could wait
                auth.remote.take(auth.remote.fetch_all(name, auth.book.names()))
            try:
                finish(auth.book.look_up(name, broker.clock.now_ns()))
            except JwtError as fault:
                log.warn(f"Account [{name}] has streams, and is not known: {fault}")


def reload_operator_mode(broker: Broker, options: ServerOptions, log: Log) -> Steps[None]:
    """Adopt the accounts' JWTs of new options or of the resolver's folder, and apply them to clients."""
    auth, operator = broker.options.auth, options.operator
    if not isinstance(auth, JwtAuthenticator) or operator is None:
        return
    if auth.remote is not None:
        return
    if isinstance(auth.book.resolver, JwtDirectory):
        yield from _read_again(auth.book, auth.book.resolver, broker.clock.now_ns(), log)
        return
    gone = yield from auth.book.replace_resolver(MemoryResolver(dict(operator.preload)), broker.clock.now_ns())
    for account in gone:
        log.info(f'Reloaded: deleting account [removed]: "{account}"')


def _read_again(book: AccountRegistry, folder: JwtDirectory, now_ns: int, log: Log) -> Steps[None]:
    """Apply the JWTs of active accounts that another program has written into the folder."""
    folder.reload()
    for account in folder.accounts():
        yield 1
        token = folder.fetch(account) if book.get(account) is not None else None
        if token is not None:
            try:
                yield from book.update(account, token, now_ns)
            except JwtError as fault:
                log.error(f'DirResolver - Update for account "{account}" resulted in error {fault}')


def _first_system_account(trusted: Trust) -> AccountClaims:
    """Return the claims of a system account without a pushed JWT."""
    limits = ClaimedLimits(subs=-1, data=-1, payload=-1, imports=-1, exports=-1, wildcards=True, conn=-1, leaf=-1)
    return AccountClaims(sub=trusted.system_account, iss=trusted.operator, nats=AccountBody(limits=limits))


def announce_operators(log: Log, options: ServerOptions, now_s: int) -> None:
    operator = options.operator
    if operator is None:
        return
    if operator.operators:
        log.info("Trusted Operators")
    for claims in operator.operators:
        _announce(log, claims)
    if operator.operators and not trust(options).system_account:
        log.warn("Trusted Operators should utilize a System Account")
    for account, token in operator.preload:
        said = decode(token, AccountClaims)
        faults = [*time_faults(said, now_s), *account_faults(said)]
        if faults:
            log.warn(f"Account [{account}] has validation issues:")
            for fault in faults:
                log.warn(f"  - {fault}")


def announce_directory(log: Log, options: ServerOptions) -> None:
    directory = options.operator.directory if options.operator is not None else None
    if directory is not None:
        kept = "all" if directory.full else "some"
        log.info(f"Managing {kept} jwt in exclusive directory {directory.folder.absolute()}")


def _announce(log: Log, claims: OperatorClaims) -> None:
    log.info(f"  System  : {go_quote(claims.aud)}")
    log.info(f"  Operator: {go_quote(claims.name)}")
    log.info(f"  Issued  : {_time(claims.iat)}")
    log.info(f"  Expires : {_time(claims.exp) if claims.exp else 'Never'}")


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %z %Z")
