"""Which imports of an account are in effect: those whose export needs no token, or whose token is good."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from natsctl.broker.jwt.claims import AccountClaims, ActivationClaims, Export, Import, decode, is_revoked
from natsctl.broker.jwt.subject_checks import contains
from natsctl.broker.jwt.token import JwtError
from natsctl.broker.jwt.validation import activation_faults, import_faults, time_faults


def imports_in_effect(
    account: AccountClaims,
    exporter: Callable[[str], AccountClaims | None],
    trusted: Callable[[str, str], bool],
    now_s: int,
) -> tuple[list[Import], int]:
    """Return the imports that may be used, and when the first of their tokens expires, in seconds; 0: never.

    `exporter` returns an account's claims, `trusted` whether an account (first) signs with a key (second).
    """
    found: list[Import] = []
    ends: list[int] = []
    for item in account.nats.imports:
        claims = exporter(item.account)
        export = _export_of(claims.nats.exports, item) if claims is not None else None
        if claims is None or export is None:
            continue
        if not export.token_req or export.account_token_position:
            found.append(item)
            continue
        token = _activation(item, account.sub, trusted, now_s)
        if token is not None and not is_revoked(export.revocations, token):
            found.append(item)
            ends += [token.exp] if token.exp else []
    return found, min(ends, default=0)


def _export_of(exports: Sequence[Export], item: Import) -> Export | None:
    """Return the export that an import is of: the one of the same subject, or the first that contains it."""
    subject = item.subject
    if item.type == "service" and not item.local_subject and item.to:
        subject = item.to
    same = [export for export in exports if export.type == item.type and contains(export.subject, subject)]
    return next((export for export in same if export.subject == subject), same[0] if same else None)


def _activation(item: Import, account: str, trusted: Callable[[str, str], bool], now_s: int) -> ActivationClaims | None:
    """Return the token of an import where it is good now."""
    if not item.token or any(import_faults(item, account)):
        return None
    try:
        token = decode(item.token, ActivationClaims)
    except JwtError:
        return None
    of = token.nats.issuer_account
    if of and (of != item.account or not trusted(of, token.iss)):
        return None
    if any(activation_faults(token)) or any(time_faults(token, now_s)) or 0 < token.exp <= now_s:
        return None
    return token
