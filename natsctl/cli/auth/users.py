"""Users of accounts: `natsctl auth user`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from natsctl.api.errors import UsageError
from natsctl.api.jwt_claims import UserClaims
from natsctl.api.model import Model
from natsctl.api.units import SECOND, parse_length, parse_size
from natsctl.cli.auth.operators import NoTags, StoredKey, Tags, change_tags, entity_document, write_private
from natsctl.cli.auth.selection import CHOSEN, AccountFlags, picked, save
from natsctl.cli.context import ShowSecrets
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import can_ask, check_consent, confirmed
from natsctl.cli.framework.flags import Defaults, Force, Json, Names
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import Verb
from natsctl.cli.render.text import safe
from natsctl.client.auth.claims import put
from natsctl.client.auth.operators import EntityExistsError, ManagedAccount, ManagedUser

if TYPE_CHECKING:
    from natsctl.client.auth.nsc_store import NscStore

DEFAULT_PAYLOAD = "1048576"
"""Largest message of a user that is made without --payload."""


class StoredUser(UserClaims, frozen=True, kw_only=True):
    """The claims of a user, with its JWT, and with --show-secrets its private key."""

    token: str
    key: StoredKey | None = None


class ListedUser(Model, kw_only=True):
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


Name = Annotated[str, Argument(metavar="NAME", help="name of the user")]
MaybeUser = Annotated[str | None, Argument(metavar="USER", help="the user, by name or public key")]
Bearer = Annotated[bool | None, Option("--bearer/--no-bearer", help="the JWT suffices to log in")]
Data = Annotated[str | None, Option("--data", metavar="SIZE", help="max size of a message [-1, no limit]")]
Locale = Annotated[str | None, Option("--locale", metavar="TEXT", help="time zone of the times of connections")]
Payload = Annotated[
    str | None, Option("--payload", metavar="SIZE", help="maximum size of a message [1MiB]; -1 is no limit")
]
Subscriptions = Annotated[
    int | None, Option("--subscriptions", metavar="N", min=-1, help="max subscriptions [-1, no limit]")
]
PubAllow = Annotated[
    list[str] | None, Option("--pub-allow", metavar="PATTERN", help="may publish there; may be repeated")
]
PubDeny = Annotated[
    list[str] | None, Option("--pub-deny", metavar="PATTERN", help="may not publish there; may be repeated")
]
SubAllow = Annotated[
    list[str] | None, Option("--sub-allow", metavar="PATTERN", help="may subscribe there; may be repeated")
]
SubDeny = Annotated[
    list[str] | None, Option("--sub-deny", metavar="PATTERN", help="may not subscribe there; may be repeated")
]
Credential = Annotated[Path | None, Option("--credential", metavar="FILE", help="write a creds file, too")]


def set_permissions(place: dict[str, Any], direction: str, allow: list[str] | None, deny: list[str] | None) -> None:
    """Set the subjects of one direction; None leaves a list unchanged, [""] empties it."""
    for key, subjects in (("allow", allow), ("deny", deny)):
        if subjects is not None:
            if "" in subjects and len(subjects) > 1:
                raise UsageError(f"--{direction}-{key} is empty", hint=f"--{direction}-{key} '' removes them all")
            put(place.setdefault(direction, {}), key, [subject for subject in subjects if subject])


def limit_of(text: str, flag: str) -> int:
    """Return the bytes of a limit, -1 for none; raises UsageError."""
    try:
        return parse_size(text)
    except ValueError as failure:
        raise UsageError(f"{flag}: {failure}") from None


class Rules(NamedTuple):
    """Limits and permissions of a user: a bundle of flags."""

    bearer: Bearer = None
    data: Data = None
    locale: Locale = None
    payload: Payload = None
    pub_allow: PubAllow = None
    pub_deny: PubDeny = None
    sub_allow: SubAllow = None
    sub_deny: SubDeny = None
    subscriptions: Subscriptions = None

    @property
    def are_given(self) -> bool:
        return any(one is not None for one in self)

    def set(self, user: ManagedUser) -> None:
        """Set the given rules; raises UsageError, also for a user who has the rules of a role."""
        if user.scope is not None:
            if self.are_given:
                role = user.scope.get("role") or user.issuer
                raise UsageError(
                    f"user {user.name} has the limits and permissions of the role {role}, and none of its own",
                    hint="natsctl auth account keys add makes another role, natsctl auth user add --key ROLE its users",
                )
            return
        body = user.nats
        for key, value in (
            ("bearer_token", self.bearer),
            ("times_location", self.locale),
            ("data", None if self.data is None else limit_of(self.data, "--data")),
            ("payload", None if self.payload is None else limit_of(self.payload, "--payload")),
            ("subs", self.subscriptions),
        ):
            if value is not None:
                put(body, key, value)
        set_permissions(body, "pub", self.pub_allow, self.pub_deny)
        set_permissions(body, "sub", self.sub_allow, self.sub_deny)


def _picked(session: Session, account: ManagedAccount, name: str | None) -> ManagedUser:
    """Return the user of that name or public key, else a person's choice; raises UsageError, EntityNotFoundError."""
    names = sorted(user.name for user in account.users)
    return account.user(picked(session, name, "USER", "Select a User", names, f"account {account.name} has no users"))


def _show(user: ManagedUser, json: bool, show_secrets: bool = False) -> None:
    if json:
        output.emit_json(entity_document(user, show_secrets))
        return
    from natsctl.cli.render.auth import render_user

    output.show_page(render_user(user))


def add(
    session: Session,
    rules: Rules,
    name: Name,
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
        rules = _with_defaults(rules, asking=can_ask(session) and not defaults)
    rules.set(user)
    change_tags(user, tags)
    user.sign()
    _save(session, place, user, credential)
    _show(user, json)


def _with_defaults(rules: Rules, *, asking: bool) -> Rules:
    if not rules.payload:
        payload = _asked("Maximum Payload", _PAYLOAD_HELP) if asking else DEFAULT_PAYLOAD
        rules = rules._replace(payload=payload)
    if rules.subscriptions is None and asking:
        answer = _asked("Maximum Subscriptions", _SUBSCRIPTIONS_HELP)
        rules = rules._replace(subscriptions=limit_of(answer, "--subscriptions"))
    return rules


def _save(session: Session, place: NscStore, user: ManagedUser, file: Path | None) -> None:
    save(session, place, user.account.operator)
    if file is not None:
        write_private(session, file, user.credentials().encode(), _CREDENTIALS)


_CREDENTIALS = "a JWT and a private key"
_PAYLOAD_HELP = "The largest message that the user can send, such as 64KiB; -1 is no limit"
_SUBSCRIPTIONS_HELP = "The number of subscriptions that the user can have; -1 is no limit"


def _asked(text: str, help: str) -> str:
    from natsctl.cli.framework.prompts import Question, prompt

    def read(answer: str) -> str:
        parse_size(answer)
        return answer

    return str(prompt(Question(text, help, default="-1", read=read)))


def edit(
    session: Session,
    rules: Rules,
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
    if not rules.are_given and all(one is None for one in (tags, no_tags, credential)):
        raise UsageError("nothing to change: give flags such as --pub-allow, --payload or --tags")
    _check_free(credential, True)
    place, owner = chosen.find(session)
    user = _picked(session, owner, name)
    rules.set(user)
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
    if names:
        found = [user.name for user in owner.users]
        output.emit_json(found) if json else output.emit_names(found)
    elif json:
        output.emit_json([_listed(user) for user in owner.users])
    elif owner.users:
        from natsctl.cli.render.auth import render_users

        output.show_table(render_users(owner))
    else:
        output.emit("No users found")


def _listed(user: ManagedUser) -> dict[str, Any]:
    limits = user.effective_limits
    return {
        "name": user.name,
        "subject": user.subject,
        "scoped": user.scope is not None,
        "pub_permissions": bool(limits.pub.allow or limits.pub.deny),
        "sub_permissions": bool(limits.sub.allow or limits.sub.deny),
        "subs": limits.subs,
    }


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
    """Raise EntityExistsError for a creds file that exists, UsageError if none can be written."""
    if file is None:
        return
    if file.exists() and not force:
        raise EntityExistsError(f"file {file} already exists", hint="--force replaces it")
    if not file.parent.is_dir() or file.is_dir():
        raise UsageError(f"{file}: {'is a folder' if file.is_dir() else 'there is no such folder'}")


_ONE = "cli.auth.users:StoredUser"

VERBS = (
    Verb(
        "add, create, new",
        add,
        answer=_ONE,
        examples=(
            "natsctl auth user add app ORDERS --pub-allow 'orders.>' --credential app.creds",
            "natsctl auth user add watcher ORDERS --key reader",
        ),
    ),
    Verb("info, show, view, i", info, answer=_ONE),
    Verb("edit, update", edit, answer=_ONE, examples=("natsctl auth user edit app ORDERS --payload 64KiB",)),
    Verb("ls", ls, answer="cli.auth.users:ListedUser[]|cli.auth.operators:PublicKey[]"),
    Verb(
        "rm",
        rm,
        answer="cli.auth.users:RemovedUser",
        examples=("natsctl auth user rm app ORDERS --revoke --force",),
    ),
    Verb(
        "credential, cred, creds",
        credential,
        answer="cli.auth.users:WrittenCredentials",
        examples=("natsctl auth user credential app.creds app ORDERS --expire 30d",),
    ),
)
