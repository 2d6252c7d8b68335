"""Users of accounts: `natsctl auth user`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

from natsctl.api.errors import ConflictError, UsageError
from natsctl.api.jwt_claims import UserClaims
from natsctl.api.model import Model
from natsctl.api.units import SECOND, parse_length, parse_size
from natsctl.cli.auth.operators import NoTags, StoredKey, Tags, change_tags, entity_document, write_private
from natsctl.cli.auth.selection import CHOSEN, AccountFlags, picked, save
from natsctl.cli.context import ShowSecrets
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import can_ask, check_consent, confirmed
from natsctl.cli.framework.flags import (
    LIMIT,
    SIZE,
    SWITCH,
    TEXT,
    Defaults,
    Flag,
    FlagKind,
    Force,
    Given,
    Json,
    Names,
    flagged,
)
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.prompts import Question, prompt
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.render.auth import render_user, render_users
from natsctl.cli.render.text import safe
from natsctl.client.auth.claims import put
from natsctl.client.auth.nsc_store import NscStore
from natsctl.client.auth.operators import ManagedAccount, ManagedUser

DEFAULT_PAYLOAD = 1048576
"""Largest message of a user that is made without --payload."""


class StoredUser(UserClaims, frozen=True, kw_only=True):
    """The claims of a user, with its JWT, and with --show-secrets its private key."""

    token: str
    key: StoredKey | None = None


class ListedUser(Model):
    """One user of a list; limits and permissions are the effective ones."""

    name: str
    subject: str
    scoped: bool
    pub_permissions: bool
    sub_permissions: bool
    subs: int


class RemovedUser(Model, kw_only=True):
    """A user that was removed."""

    name: str
    account: str
    removed: bool
    revoked: bool


class WrittenCredentials(Model, kw_only=True):
    """A creds file that was written."""

    name: str
    account: str
    file: str


MaybeUser = Annotated[str | None, Argument(metavar="USER", help="the user, by name or public key")]
Credential = Annotated[Path | None, Option("--credential", metavar="FILE", help="write a creds file, too")]


def _patterns(subjects: list[str]) -> list[str]:
    if "" in subjects and len(subjects) > 1:
        raise ValueError("a subject is empty; a single '' removes them all")
    return [subject for subject in subjects if subject]


_PATTERNS = FlagKind("PATTERN", str, repeated=True, gather=_patterns)
RULES = (
    Flag("--bearer", SWITCH, "bearer_token", "the JWT suffices to log in"),
    Flag("--data", SIZE, "data", "max size of a message [-1, no limit]"),
    Flag("--locale", TEXT, "times_location", "time zone of the times of connections"),
    Flag("--payload", SIZE, "payload", "maximum size of a message [1MiB]; -1 is no limit"),
    Flag("--pub-allow", _PATTERNS, "pub.allow", "may publish there; may be repeated"),
    Flag("--pub-deny", _PATTERNS, "pub.deny", "may not publish there; may be repeated"),
    Flag("--sub-allow", _PATTERNS, "sub.allow", "may subscribe there; may be repeated"),
    Flag("--sub-deny", _PATTERNS, "sub.deny", "may not subscribe there; may be repeated"),
    Flag("--subscriptions", LIMIT, "subs", "max subscriptions [-1, no limit]"),
)


def _set_rules(user: ManagedUser, given: Given) -> None:
    """Set the given rules; raises UsageError for a user who has the rules of a role."""
    if given and user.scope is not None:
        raise UsageError(
            f"user {user.name} has the limits and permissions of the role {user.scope.get('role') or user.issuer}, "
            "and none of its own",
            hint="natsctl auth account keys add makes another role, natsctl auth user add --key ROLE its users",
        )
    for flag in RULES:
        if flag.name in given:
            direction, _, key = str(flag.to).rpartition(".")
            put(user.nats.setdefault(direction, {}) if direction else user.nats, key, given[flag.name])


def _picked(session: Session, account: ManagedAccount, name: str | None) -> ManagedUser:
    """Return the user of that name or public key, else a person's choice; raises UsageError, EntityNotFoundError."""
    names = sorted(user.name for user in account.users)
    return account.user(picked(session, name, "USER", "Select a User", names, f"account {account.name} has no users"))


def _show(user: ManagedUser, json: bool, show_secrets: bool = False) -> None:
    if json:
        output.emit_json(entity_document(user, show_secrets))
        return
    output.show_page(render_user(user))


@flagged(RULES)
def add(
    session: Session,
    given: Given,
    name: Annotated[str, Argument(metavar="NAME", help="name of the user")],
    chosen: AccountFlags,
    key: Annotated[
        str | None, Option("--key", metavar="KEY", help="the account's signing key, or its role, to sign with")
    ] = None,
    tags: Tags = None,
    force: Annotated[bool, Option("--force", "-f", help="replace an existing creds file")] = False,
    credential: Credential = None,
    defaults: Defaults = False,
    json: Json = False,
) -> None:
    """Create a user of an account.

    A user who is signed with the key of a role has the permissions and limits of that role, and none of its own.
    """
    _check_free(credential, force)
    place, owner = chosen.find(session)
    user = owner.add_user(name, key or "")
    if user.scope is None:
        rules = _with_defaults(given, asking=can_ask(session) and not defaults)
    _set_rules(user, rules if user.scope is None else given)
    change_tags(user, tags)
    user.sign()
    _save(session, place, user, credential)
    _show(user, json)


def _with_defaults(given: Given, *, asking: bool) -> Given:
    rules = dict(given)
    if "--payload" not in rules:
        rules["--payload"] = _asked("Maximum Payload", _PAYLOAD_HELP) if asking else DEFAULT_PAYLOAD
    if "--subscriptions" not in rules and asking:
        rules["--subscriptions"] = _asked("Maximum Subscriptions", _SUBSCRIPTIONS_HELP)
    return rules


def _save(session: Session, place: NscStore, user: ManagedUser, file: Path | None) -> None:
    save(session, place, user.account.operator)
    if file is not None:
        write_private(session, file, user.credentials().encode(), _CREDENTIALS)


_CREDENTIALS = "a JWT and a private key"
_PAYLOAD_HELP = "The largest message that the user can send, such as 64KiB; -1 is no limit"
_SUBSCRIPTIONS_HELP = "The number of subscriptions that the user can have; -1 is no limit"


def _asked(text: str, help: str) -> Any:
    return prompt(Question(text, help, default="-1", read=parse_size))


@flagged(RULES)
def edit(
    session: Session,
    given: Given,
    name: MaybeUser = None,
    chosen: AccountFlags = CHOSEN,
    tags: Tags = None,
    no_tags: NoTags = None,
    credential: Credential = None,
    json: Json = False,
) -> None:
    """Change a user; what no flag names stays.

    Subjects replace the flag's earlier ones, and '' removes them. Creds files that were written before still hold the
    old JWT, and servers accept it: --credential replaces one.
    """
    if not given and all(one is None for one in (tags, no_tags, credential)):
        raise UsageError("nothing to change: give flags such as --pub-allow, --payload or --tags")
    _check_free(credential, True)
    place, owner = chosen.find(session)
    user = _picked(session, owner, name)
    _set_rules(user, given)
    change_tags(user, tags, no_tags)
    user.sign()
    _save(session, place, user, credential)
    _show(user, json)


def info(
    session: Session,
    name: MaybeUser = None,
    chosen: AccountFlags = CHOSEN,
    show_secrets: ShowSecrets = False,
    json: Json = False,
) -> None:
    """Show a user; --show-secrets adds the private key to -j."""
    _, owner = chosen.find(session)
    _show(_picked(session, owner, name), json, show_secrets)


def ls(session: Session, chosen: AccountFlags, names: Names = False, json: Json = False) -> None:
    """List the users of an account."""
    _, owner = chosen.find(session)
    users = [_listed(user) for user in owner.users]
    known = [user.name for user in users] if names else None
    output.show_list(users, lambda: render_users(owner.name, users), "No users found", json=json, names=known)


def _listed(user: ManagedUser) -> ListedUser:
    limits = user.effective_limits
    pub, sub = (bool(rules.allow or rules.deny) for rules in (limits.pub, limits.sub))
    return ListedUser(user.name, user.subject, user.scope is not None, pub, sub, limits.subs)


def rm(
    session: Session,
    name: MaybeUser = None,
    chosen: AccountFlags = CHOSEN,
    revoke: Annotated[bool, Option("--revoke", help="revoke the user's credentials in the account's JWT, too")] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Remove a user and its private key.

    Servers accept its credentials until they expire, unless --revoke is given and the account is pushed to them.
    """
    check_consent(session, f"remove user {name or ''}".strip(), force)
    place, owner = chosen.find(session)
    user = _picked(session, owner, name)
    if not confirmed(session, f"remove user {user.name} of account {owner.name}", force):
        return
    owner.remove_user(user.subject)
    if revoke:
        owner.revoke(user.subject, int(time.time()))
    save(session, place, owner.operator)
    if json:
        output.emit_json({"name": user.name, "account": owner.name, "removed": True, "revoked": revoke})
        return
    output.emit(f"Removed user {safe(user.name)}")
    if revoke:
        output.note(f"the revocation takes effect once servers have it: natsctl auth account push {safe(owner.name)}")


def credential(
    session: Session,
    file: Annotated[Path, Argument(metavar="FILE", help="the creds file to write; - is stdout")],
    name: MaybeUser = None,
    chosen: AccountFlags = CHOSEN,
    expire: Annotated[
        str | None, Option("--expire", metavar="DURATION", help="time until the credentials expire [never]")
    ] = None,
    force: Annotated[bool, Option("--force", "-f", help="replace an existing file")] = False,
    json: Json = False,
) -> None:
    """Write a creds file: the JWT and the private key of a user, for clients to log in."""
    to_stdout = str(file) == "-"
    if not to_stdout:
        _check_free(file, force)
    elif json:
        raise UsageError("-j and a creds file on stdout exclude each other")
    expires_s = _expiry(expire)
    _, owner = chosen.find(session)
    user = _picked(session, owner, name)
    text = user.credentials(expires_s)
    if to_stdout and not session.dry_run:
        sys.stdout.write(text)
        return
    write_private(session, file, text.encode(), _CREDENTIALS)
    if json:
        output.emit_json({"name": user.name, "account": owner.name, "file": str(file)})
    else:
        output.emit(f"Wrote credential for {safe(user.name)} to {safe(str(file))}")


def _expiry(text: str | None) -> int:
    """Return the time when credentials expire, in s since the epoch, 0 for never; raises UsageError."""
    if text is None:
        return 0
    try:
        ns = parse_length(text)
    except ValueError as failure:
        raise UsageError(f"--expire: {failure}") from None
    if ns < SECOND:
        raise UsageError("--expire: expected at least 1s")
    return int(time.time()) + ns // SECOND


def _check_free(file: Path | None, force: bool) -> None:
    """Raise ConflictError for a creds file that exists, UsageError if none can be written."""
    if file is None:
        return
    if file.exists() and not force:
        raise ConflictError(f"file {file} already exists", hint="--force replaces it")
    if not file.parent.is_dir() or file.is_dir():
        raise UsageError(f"{file}: {'is a folder' if file.is_dir() else 'there is no such folder'}")


_ONE = "cli.auth.users:StoredUser"

VERBS = (
    verb(
        "add, create, new",
        add,
        _ONE,
        "natsctl auth user add app ORDERS --pub-allow 'orders.>' --credential app.creds",
        "natsctl auth user add watcher ORDERS --key reader",
    ),
    verb("info, show, view, i", info, _ONE),
    verb("edit, update", edit, _ONE, "natsctl auth user edit app ORDERS --payload 64KiB"),
    verb("ls", ls, "cli.auth.users:ListedUser[]|cli.auth.operators:PublicKey[]"),
    verb("rm", rm, "cli.auth.users:RemovedUser", "natsctl auth user rm app ORDERS --revoke --force"),
    verb(
        "credential, cred, creds",
        credential,
        "cli.auth.users:WrittenCredentials",
        "natsctl auth user credential app.creds app ORDERS --expire 30d",
    ),
)
