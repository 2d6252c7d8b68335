"""What the log says of operators and of their accounts when a server starts."""

from __future__ import annotations

from datetime import datetime

from natsctl.api.syntax import go_quote
from natsctl.broker.jwt.claims import AccountClaims, OperatorClaims, decode
from natsctl.broker.jwt.validation import account_faults, time_faults
from natsctl.server.auth.operator_mode import trust
from natsctl.server.options import ServerOptions
from natsctl.server.process.log import Log


def announce_operators(log: Log, options: ServerOptions, now_s: int) -> None:
    """Say whom the server trusts, and what is wrong with preloaded accounts."""
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
    """Say where account JWTs are kept."""
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
