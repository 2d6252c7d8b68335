"""Signing keys of accounts, and the roles of scoped ones: `natsctl auth account keys`."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from natsctl.api.errors import UsageError
from natsctl.api.jwt_claims import Template
from natsctl.api.units import plural
from natsctl.cli.auth.account_settings import Removed, show_list
from natsctl.cli.auth.selection import AccountFlags, save
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import can_ask, confirmed
from natsctl.cli.framework.flags import (
    LIMIT,
    SIZE,
    SOME_SUBJECTS,
    SWITCH,
    TEXT,
    Flag,
    FlagKind,
    Force,
    Given,
    Json,
    flagged,
    flat,
)
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.prompts import Question, prompt
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.render.auth import add_user_limits
from natsctl.cli.render.page import Page
from natsctl.cli.render.text import count, safe
from natsctl.client.auth.account_claims import CONNECTION_TYPES, new_scope
from natsctl.client.auth.claims import Document
from natsctl.client.auth.operators import ManagedAccount


def _connections(text: str) -> list[str]:
    words = text.replace(",", " ").split()
    for word in words:
        if word not in CONNECTION_TYPES:
            raise ValueError(f"expected one of {', '.join(CONNECTION_TYPES)}, not {word!r}")
    return [CONNECTION_TYPES[word] for word in words]


_RULES: Final = ("pub-allow", "pub-deny", "sub-allow", "sub-deny")
SCOPE: Final = (
    Flag("--description", TEXT, "description", "a description"),
    Flag("--subscriptions", LIMIT, "subs", "max subscriptions of each user"),
    Flag("--payload", SIZE, "payload", "maximum size of a message"),
    Flag("--bearer", SWITCH, "bearer_token", "allow bearer tokens"),
    Flag("--locale", TEXT.named("ZONE"), "times_location", "time zone of the users"),
    Flag(
        "--connection",
        FlagKind("|".join(CONNECTION_TYPES), _connections, repeated=True, gather=flat),
        "allowed_connection_types",
        "kinds of connections that are allowed",
    ),
    *(
        Flag(
            f"--{name}",
            SOME_SUBJECTS,
            name,
            f"subjects that users may {'not ' * name.endswith('deny')}"
            f"{'publish' if name.startswith('pub') else 'subscribe'} to",
        )
        for name in _RULES
    ),
)
_TEMPLATE: Final = ("subs", "payload", "bearer_token", "times_location", "allowed_connection_types")


class SigningKey(msgspec.Struct):
    """A signing key of an account; a scoped one has a role, and its scope as in the JWT."""

    key: str
    role: str = ""
    description: str = ""
    scope: dict[str, Any] | None = None


def _shown(key: str, scope: Document | None) -> SigningKey:
    said = scope or {}
    return SigningKey(key, str(said.get("role", "")), str(said.get("description", "")), scope)


def render_scope(key: str, scope: Document | None) -> Page:
    page = Page(f"{'Scoped ' * (scope is not None)}Signing Key {safe(key)}")
    rows = page.section("Config")
    if scope is None:
        rows.row("Key", safe(key))
        return page
    rows.maybe("Description", safe(str(scope.get("description", ""))))
    rows.row("Key", safe(key))
    rows.row("Role", safe(str(scope.get("role", ""))))
    add_user_limits(page, msgspec.convert(scope.get("template") or {}, Template), rows)
    return page


def _show(key: str, scope: Document | None, json: bool) -> None:
    output.emit_json(_shown(key, scope)) if json else output.show_page(render_scope(key, scope))


@flagged(SCOPE)
def add(
    session: Session,
    given: Given,
    chosen: AccountFlags,
    role: Annotated[str | None, Argument(metavar="ROLE", help="the role of users that the key signs")] = None,
    unscoped: Annotated[
        bool, Option("--unscoped", help="a key without a role: its users have rules of their own")
    ] = False,
    json: Json = False,
) -> None:
    """Add a signing key to an account.

    Users that are signed with a key that has a role have the rules of that role.
    """
    store, found = chosen.find(session)
    if role is None and not unscoped:
        role = _asked_role(session)
    if not role or unscoped:
        if given:
            raise UsageError(f"{next(iter(given))} is for a key with a role: give ROLE")
        scope = None
    else:
        template = {str(flag.to): given[flag.name] for flag in SCOPE if flag.name in given and flag.to in _TEMPLATE}
        rules = {name: given[f"--{name}"] for name in _RULES if f"--{name}" in given}
        scope = new_scope(role, given.get("--description", ""), template, rules)
    key = found.add_signing_key(scope)
    save(session, store, found.operator)
    if scope is None and not json:
        output.emit(f"Added signing key: {key.public}")
        return
    _show(key.public, scope, json)


def _asked_role(session: Session) -> str:
    if not can_ask(session):
        raise UsageError("ROLE is missing", hint="--unscoped adds a key without a role")
    return str(prompt(Question("Role Name", "The role of users that the key signs; empty for a key without one")))


def _picked(session: Session, account: ManagedAccount, name: str | None, word: str) -> str:
    if name is None:
        if not account.scopes:
            raise UsageError(f"account {account.name} has no signing keys")
        if not can_ask(session):
            raise UsageError(f"{word} is missing", hint=f"there are {', '.join(account.scopes)}")
        shown = [(_shown(key, scope), key) for key, scope in account.scopes.items()]
        choices = tuple((f"{key} {safe(one.role)}".strip(), key) for one, key in shown)
        name = str(prompt(Question("Select Signing Key", choices=choices)))
    return account.signing_key(name)


def info(
    session: Session,
    chosen: AccountFlags,
    key: Annotated[str | None, Argument(metavar="KEY", help="the role or the public key")] = None,
    json: Json = False,
) -> None:
    """Show a signing key, and the rules of its role."""
    _, found = chosen.find(session)
    public = _picked(session, found, key, "KEY")
    _show(public, found.scopes[public], json)


def ls(session: Session, chosen: AccountFlags, json: Json = False) -> None:
    """List the signing keys of an account."""
    _, found = chosen.find(session)
    keys = sorted((_shown(*one) for one in found.scopes.items()), key=lambda one: (not one.role, one.role, one.key))
    rows = [(key.key, key.role, key.description, *_counts(key.scope)) for key in keys]
    columns = ("Key", "Role", "Description", "Max Subscriptions", "Pub Perms", "Sub Perms")
    title = f"Signing Keys for Account {safe(found.name)}"
    show_list(title, columns, rows, msgspec.to_builtins(keys), "No Signing Keys or Roles defined", json)


def _counts(scope: Document | None) -> tuple[str, str, str]:
    if scope is None:
        return "", "", ""
    template = scope.get("template") or {}
    subs = template.get("subs", -1)
    pub, sub = (
        count(sum(len(template.get(direction, {}).get(rule) or ()) for rule in ("allow", "deny")))
        for direction in ("pub", "sub")
    )
    return "unlimited" if subs < 0 else count(subs), pub, sub


def rm(
    session: Session,
    chosen: AccountFlags,
    key: Annotated[str | None, Option("--key", metavar="KEY", help="the role or the public key")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Remove a signing key; users that it signed cannot log in once the account is pushed."""
    store, found = chosen.find(session)
    public = _picked(session, found, key, "--key")
    role = (found.scopes[public] or {}).get("role")
    action = f"remove the signing key {public}{f' of role {role}' if role else ''}"
    users = found.remove_signing_key(public)
    if users:
        names = ", ".join(sorted(user.name for user in users)[:5])
        action += f", which has signed {plural(len(users), 'user')} ({names}{', …' * (len(users) > 5)})"
    if not confirmed(session, action, force):
        return
    save(session, store, found.operator)
    output.emit_json(Removed(public)) if json else output.emit(f"key {public} removed")


_KEY: Final = "cli.auth.roles:SigningKey"
VERBS = (
    verb(
        "add, new, a, n",
        add,
        _KEY,
        "natsctl auth account keys add APP reader --sub-allow 'orders.>' --pub-deny '>'",
        "natsctl auth account keys add APP --unscoped",
    ),
    verb("info, i, show, view", info, _KEY),
    verb("ls, list", ls, f"{_KEY}[]"),
    verb("rm", rm, "cli.auth.account_settings:Removed", "natsctl auth account keys rm APP --key reader --force"),
)
