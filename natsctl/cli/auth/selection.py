"""The operator and the account of a command: by flag, selected, the only one, or picked at a terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from natsctl.api.errors import UsageError
from natsctl.cli.framework.consent import can_ask
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.prompts import prompt_name
from natsctl.cli.framework.session import Session
from natsctl.client.auth.nsc_store import NscStore
from natsctl.client.auth.operators import ManagedAccount, Operator
from natsctl.client.message import DryRunError, Planned

OperatorFlag = Annotated[
    str | None, Option("--operator", metavar="OPERATOR", help="the operator [the selected one, else the only one]")
]
MaybeOperator = Annotated[str | None, Argument(metavar="OPERATOR", help="the operator, by name or public key")]


def store() -> NscStore:
    return NscStore.of_environment(os.environ)


def picked(session: Session, name: str | None, word: str, text: str, names: Sequence[str], none: str = "") -> str:
    """Return the name given as `word`, else a person's choice. Raises UsageError, with `none` if there are no names."""
    if name is not None:
        return name
    if none and not names:
        raise UsageError(none)
    if not can_ask(session):
        raise UsageError(f"{word} is missing", hint=f"there are {', '.join(names)}" if names else "")
    return prompt_name(text, names)


def picked_operator(session: Session, store: NscStore, name: str | None) -> Operator:
    """Return the operator of that name, else the selected one, the only one, or a person's choice."""
    names = store.names()
    name = name or store.selected() or (names[0] if len(names) == 1 else None)
    if not name and not names:
        raise UsageError("there is no operator", hint="natsctl auth operator add NAME makes one")
    return store.operator(picked(session, name, "--operator", "Select an Operator", names))


class AccountFlags(NamedTuple):
    """The account of a command, and its operator: a bundle of flags for commands."""

    account: Annotated[str | None, Argument(metavar="ACCOUNT", help="the account, by name or public key")] = None
    operator: OperatorFlag = None

    def find(self, session: Session) -> tuple[NscStore, ManagedAccount]:
        """Return the store, and the account: by name or key, the only one, or a choice. Raises UsageError."""
        place = store()
        operator = picked_operator(session, place, self.operator)
        if self.account is None and len(operator.accounts) == 1:
            return place, operator.accounts[0]
        names = sorted(account.name for account in operator.accounts)
        return place, operator.account(picked(session, self.account, "ACCOUNT", "Select an Account", names))


CHOSEN = AccountFlags()


def save(session: Session, store: NscStore, operator: Operator) -> None:
    if not session.dry_run:
        store.save(operator)
        return
    changes = store.changes(operator)
    files = [
        Planned(
            str(change.path), b"(secret)" if change.path.suffix in (".nk", ".creds") else (change.text or "").encode()
        )
        for change in changes
    ]
    gone = [str(change.path) for change in changes if change.text is None]
    raise DryRunError(*files, effect={"removes": gone} if gone else None)
