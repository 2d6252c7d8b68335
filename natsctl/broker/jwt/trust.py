"""Whom a server trusts: operators, their signing keys, and the accounts that are pinned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from natsctl.api.model import Confidential
from natsctl.broker.jwt.claims import OperatorClaims


class Trust(Confidential, frozen=True):
    """The keys that may sign accounts, and what else operators ask for."""

    UNSHOWN: ClassVar = ("sentinel",)

    keys: frozenset[str] = frozenset()
    strict_keys: frozenset[str] = frozenset()
    """Signing keys of operators that want accounts, too, to sign with signing keys alone."""
    operator: str = ""
    """The first operator's own key, empty where keys are trusted without an operator."""
    strict: bool = False
    """The first operator does not sign accounts with its own key."""
    system_account: str = ""
    pinned: frozenset[str] | None = None
    """The only accounts whose users may connect; None: every one."""
    sentinel: str = ""
    """The JWT of clients that bring none; empty: they are refused."""


def trust_of(
    operators: Sequence[OperatorClaims],
    keys: Sequence[str] = (),
    system_account: str = "",
    pinned: Sequence[str] = (),
    sentinel: str = "",
) -> Trust:
    """Return what operators and plain keys together are trusted with; `system_account` wins over an operator's."""
    trusted, strict_keys = set(keys), set[str]()
    for claims in operators:
        trusted.update(claims.nats.signing_keys)
        if claims.nats.strict_signing_key_usage:
            strict_keys.update(claims.nats.signing_keys)
        else:
            trusted.add(claims.sub)
    system = system_account or (operators[0].nats.system_account if len(operators) == 1 else "")
    return Trust(
        keys=frozenset(trusted),
        strict_keys=frozenset(strict_keys),
        operator=operators[0].sub if operators else "",
        strict=bool(operators) and operators[0].nats.strict_signing_key_usage,
        system_account=system,
        pinned=frozenset((*pinned, system)) - {""} if pinned else None,
        sentinel=sentinel,
    )
