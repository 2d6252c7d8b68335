"""The operator and the account of a command: by flag, selected, the only one, or picked at a terminal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from natsctl.api.errors import UsageError
from natsctl.cli.framework.consent import can_ask
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.client.auth.nsc_store import NscStore

if TYPE_CHECKING:
    from natsctl.cli.framework.session import Session
    from natsctl.client.auth.operators import ManagedAccount, Operator

OperatorFlag = Annotated[
    str | None, Option("--operator", metavar="OPERATOR", help="the operator [the selected one, else the only one]")
]
MaybeOperator = Annotated[str | None, Argument(metavar="OPERATOR", help="the operator, by name or public key")]
MaybeAccount = Annotated[str | None, Argument(metavar="ACCOUNT", help="the account, by name or public key")]


def store() -> NscStore:
    return NscStore.of_environment(os.environ)


def picked_operator(session: Session, store: NscStore, name: str | None) -> Operator:
    """Return the operator of that name, else the selected one, the only one, or a person's choice.

    Raises UsageError, EntityNotFoundError.
    """
    names = store.names()
    name = name or store.selected() or (names[0] if len(names) == 1 else "")
    if not name:
        if not names:
            raise UsageError("there is no operator", hint="natsctl auth operator add NAME makes one")
        if not can_ask(session):
            raise UsageError("--operator is missing", hint=f"there are {', '.join(names)}")
        from natsctl.cli.framework.prompts import prompt_name

        name = prompt_name("Select an Operator", names)
    return store.operator(name)


def picked_account(session: Session, operator: Operator, name: str | None) -> ManagedAccount:
    """Return the account of that name or public key, else the only one, or a choice; raises UsageError."""
    if name is None:
        names = sorted(one.name for one in operator.accounts)
        if len(names) == 1:
            return operator.accounts[0]
        if not can_ask(session):
            raise UsageError("ACCOUNT is missing", hint=f"there are {', '.join(names)}" if names else "")
        from natsctl.cli.framework.prompts import prompt_name

        name = prompt_name("Select an Account", names)
    return operator.account(name)


def chosen_account(session: Session, operator: str | None, name: str | None) -> tuple[NscStore, ManagedAccount]:
    place = store()
    return place, picked_account(session, picked_operator(session, place, operator), name)


def save(session: Session, store: NscStore, operator: Operator) -> None:
    if not session.dry_run:
        store.save(operator)
        return
    from natsctl.client.message import DryRunError, Planned

    changes = store.changes(operator)
    files = [
        Planned(str(one.path), b"(secret)" if one.path.suffix in (".nk", ".creds") else (one.text or "").encode())
        for one in changes
    ]
    gone = [str(one.path) for one in changes if one.text is None]
    raise DryRunError(*files, effect={"removes": gone} if gone else None)
