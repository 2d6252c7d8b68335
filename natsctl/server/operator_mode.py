"""Operator mode of a running server: its authenticator, its binding to the broker, and its log lines."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from natsctl.api.codec import go_quote
from natsctl.api.errors import UsageError
from natsctl.broker.jwt.account_registry import AccountStoreError, MemoryResolver, Resolver, Trust, trust_of
from natsctl.broker.jwt.authenticator import BrokerAccountSink, JwtAuthenticator
from natsctl.broker.jwt.claim_requests import ClaimRequests
from natsctl.broker.jwt.claims import AccountBody, AccountClaims, OperatorClaims, decode
from natsctl.broker.jwt.claims import AccountLimits as ClaimedLimits
from natsctl.broker.jwt.token import JwtError
from natsctl.broker.jwt.validation import account_faults, time_faults
from natsctl.server.jwt_directory import JwtDirectory
from natsctl.server.options import ServerOptions
from natsctl.server.process.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterable

    from natsctl.api.account import AccountLimits
    from natsctl.broker.broker import Broker
    from natsctl.broker.jwt.account_registry import AccountRegistry
    from natsctl.server.jwt_directory import OperatorOptions


def trust(options: ServerOptions) -> Trust:
    """Return the operators that the options trust."""
    operator = options.operator
    if operator is None:
        return Trust(system_account=options.system_account)
    return trust_of(
        operator.operators, operator.trusted_keys, options.system_account, operator.pinned, operator.sentinel
    )


def jwt_authenticator(options: ServerOptions) -> JwtAuthenticator | None:
    """Return who knows the users where JWTs say it, None where configuration does.

    Raises OSError where the resolver's folder cannot be used.
    """
    trusted = trust(options)
    if options.operator is None or not trusted.keys:
        return None
    return JwtAuthenticator(trusted, _resolver(options.operator))


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
    """Bind the broker's authenticator to it, where it is one of JWTs, and bring the system account to life.

    Returns the limits of accounts that have JetStream whatever they claim: of none; None where accounts are not an
    operator's. Raises UsageError where there is no system account.
    """
    auth = broker.options.auth
    if not isinstance(auth, JwtAuthenticator):
        return None
    BrokerAccountSink(broker, auth)
    resolver = auth.book.resolver
    store = resolver if isinstance(resolver, JwtDirectory) else None
    if auth.trust.system_account:
        try:
            auth.book.look_up(auth.trust.system_account, broker.clock.now_ns())
        except JwtError as fault:
            if store is None:
                raise UsageError(f"error resolving system account: {fault}") from None
            if auth.trust.strict:  # whose own key, which would have to vouch for it, signs no accounts
                raise UsageError("Can't set system account: account validation failed") from None
            auth.book.provide(_first_system_account(auth.trust), broker.clock.now_ns())
    ClaimRequests(broker, auth.book, store, log.error).listen()
    return {}


def wake_accounts(broker: Broker, names: Iterable[str], log: Log) -> None:
    """Bring accounts of an operator to life: those that have streams."""
    auth = broker.options.auth
    if isinstance(auth, JwtAuthenticator):
        for name in names:
            try:
                auth.book.look_up(name, broker.clock.now_ns())
            except JwtError as fault:
                log.warn(f"Account [{name}] has streams, and is not known: {fault}")


def reload_operator_mode(broker: Broker, options: ServerOptions, log: Log) -> None:
    """Take the accounts' JWTs of new options, or those in the resolver's folder; clients are held to them."""
    auth, operator = broker.options.auth, options.operator
    if not isinstance(auth, JwtAuthenticator) or operator is None:
        return
    if isinstance(auth.book.resolver, JwtDirectory):
        _read_again(auth.book, auth.book.resolver, broker.clock.now_ns(), log)
        return
    gone = auth.book.replace_resolver(MemoryResolver(dict(operator.preload)), broker.clock.now_ns())
    for account in gone:
        log.info(f'Reloaded: deleting account [removed]: "{account}"')


def _read_again(book: AccountRegistry, folder: JwtDirectory, now_ns: int, log: Log) -> None:
    """Apply the JWTs of active accounts that another program has written into the folder."""
    folder.reload()
    for account in folder.accounts():
        token = folder.fetch(account) if book.get(account) is not None else None
        if token is not None:
            try:
                book.update(account, token, now_ns)
            except JwtError as fault:
                log.error(f'DirResolver - Update for account "{account}" resulted in error {fault}')


def _first_system_account(trusted: Trust) -> AccountClaims:
    """Return the claims of a system account whose JWT is yet to be pushed."""
    limits = ClaimedLimits(subs=-1, data=-1, payload=-1, imports=-1, exports=-1, wildcards=True, conn=-1, leaf=-1)
    return AccountClaims(sub=trusted.system_account, iss=trusted.operator, nats=AccountBody(limits=limits))


def announce_operators(log: Log, options: ServerOptions, now_s: int) -> None:
    """Log the trusted operators, and faults of preloaded accounts."""
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
    """Log the folder of account JWTs."""
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
    """Return a time of this machine as Go shows it."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %z %Z")
