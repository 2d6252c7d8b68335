"""Operators: `natsctl auth operator`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from natsctl.api.errors import ConflictError, NatsctlError, UsageError, file_errors
from natsctl.api.jwt_claims import OperatorClaims
from natsctl.api.model import Model
from natsctl.cli.auth.selection import MaybeOperator, picked, picked_operator, save, store
from natsctl.cli.context import ShowSecrets
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import can_ask, check_consent, confirmed
from natsctl.cli.framework.flags import Force, Json, Names
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.prompts import Question, prompt
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import Verb, verb
from natsctl.cli.jwt import token_in
from natsctl.cli.render.auth import render_operator, render_operators
from natsctl.cli.render.text import safe
from natsctl.client.atomic_file import PRIVATE, atomic_write
from natsctl.client.auth.claims import add_tags, put, remove_tags
from natsctl.client.auth.keys import KeyPair, find_key
from natsctl.client.auth.nsc_store import NscStore, backup_of, imported, restored
from natsctl.client.auth.operators import Entity, Operator, new_operator
from natsctl.client.message import DryRunError, Planned


class StoredKey(Model, kw_only=True):
    """The private key of an operator, account or user, or "" if it is not in the store."""

    key: str


class StoredOperator(OperatorClaims, frozen=True, kw_only=True):
    """The claims of an operator, with its JWT, and with --show-secrets its private key."""

    token: str
    key: StoredKey | None = None


class ListedOperator(Model):
    """One operator of a list."""

    name: str
    subject: str
    selected: bool
    accounts: int
    account_server: str
    signing_keys: int


class SelectedOperator(Model, kw_only=True):
    """The operator that commands use by default."""

    name: str


class WrittenFile(Model, kw_only=True):
    """A file that was written."""

    name: str
    file: str


class SigningKey(Model, kw_only=True):
    """A public signing key."""

    key: str


class RemovedKey(Model, kw_only=True):
    """A signing key that was removed, and the names of entities signed with it; servers no longer trust them."""

    key: str
    removed: bool
    signed: list[str]


Services = Annotated[
    list[str] | None, Option("--service", metavar="URL", help="where servers of the operator are; may be repeated")
]
AccountServer = Annotated[str | None, Option("--account-server", metavar="URL", help="the account server")]
Tags = Annotated[list[str] | None, Option("--tags", metavar="TAG", help="add a tag; may be repeated")]
NoTags = Annotated[list[str] | None, Option("--no-tags", metavar="TAG", help="remove a tag; may be repeated")]


def read_key(path: Path) -> KeyPair:
    return find_key(read_file(path).decode(errors="replace"), str(path))


def read_file(path: Path) -> bytes:
    with file_errors(path, UsageError):
        return path.read_bytes()


def write_private(session: Session, path: Path, content: bytes, about: str) -> None:
    """Write a file that only its owner may read; a dry run ends with `about` instead of the content."""
    if session.dry_run:
        raise DryRunError(Planned(str(path), about.encode()))
    with file_errors(path), atomic_write(path, PRIVATE, durable=True) as file:
        file.write(content)


def entity_document(entity: Entity, show_secrets: bool = False) -> dict[str, Any]:
    """Return the document for -j: the claims, the JWT and, if wanted, the private key."""
    shown = {**entity.claims, "token": entity.token}
    return {**shown, "key": {"key": entity.key.seed if entity.key.is_private else ""}} if show_secrets else shown


def _show(operator: Operator, json: bool, show_secrets: bool = False) -> None:
    if json:
        output.emit_json(entity_document(operator, show_secrets))
        return
    output.show_page(render_operator(operator))


def change_tags(entity: Entity, tags: list[str] | None, no_tags: list[str] | None = None) -> None:
    """Add and remove tags of claims, without signing them."""
    add_tags(entity.claims, tags or ())
    remove_tags(entity.claims, no_tags or ())


def add(
    session: Session,
    name: Annotated[str | None, Argument(metavar="NAME", help="name of the operator")] = None,
    service: Services = None,
    account_server: AccountServer = None,
    signing_key: Annotated[
        bool, Option("--signing-key/--no-signing-key", help="make a signing key for the operator")
    ] = True,
    tags: Tags = None,
    json: Json = False,
) -> None:
    """Create an operator with its keys and a system account.

    JWTs and keys are kept in the store that nsc and the nats tool use.
    """
    place = store()
    if name is None:
        if not can_ask(session):
            raise UsageError("NAME is missing")
        name = str(prompt(Question("Operator Name", "A unique name for the operator", required=True)))
    operator = new_operator(name, signing_key=signing_key)
    _set(operator, service, account_server, tags, None)
    save(session, place, operator)
    _show(operator, json)


def _set(
    operator: Operator,
    service: list[str] | None,
    account_server: str | None,
    tags: list[str] | None,
    no_tags: list[str] | None,
) -> None:
    if service is not None:
        put(operator.nats, "operator_service_urls", [url for url in service if url])
    if account_server is not None:
        put(operator.nats, "account_server_url", account_server)
    change_tags(operator, tags, no_tags)
    operator.sign()


def edit(
    session: Session,
    name: MaybeOperator = None,
    account_server: AccountServer = None,
    service: Services = None,
    tags: Tags = None,
    no_tags: NoTags = None,
    json: Json = False,
) -> None:
    """Change an operator; what no flag names stays."""
    place = store()
    operator = picked_operator(session, place, name)
    if all(one is None for one in (account_server, service, tags, no_tags)):
        raise UsageError("nothing to change: give flags such as --account-server, --service or --tags")
    _set(operator, service, account_server, tags, no_tags)
    save(session, place, operator)
    _show(operator, json)


def info(session: Session, name: MaybeOperator = None, show_secrets: ShowSecrets = False, json: Json = False) -> None:
    """Show an operator; --show-secrets adds its private key to -j."""
    _show(picked_operator(session, store(), name), json, show_secrets)


def ls(names: Names = False, json: Json = False) -> None:
    """List the operators; the selected one has a star."""
    place = store()
    if names:
        output.emit_json(place.names()) if json else output.emit_names(place.names())
        return
    selected = place.selected()
    operators = [
        ListedOperator(
            each.name, each.subject, each.name == selected, len(each.accounts), each.typed.nats.account_server_url,
            len(each.signing_key_names),
        )
        for each in place.operators()
    ]  # fmt: skip
    output.show_list(operators, lambda: render_operators(operators), "No Operators found", json=json)


def select(session: Session, name: MaybeOperator = None, json: Json = False) -> None:
    """Select the operator that commands use by default, also those of the nats tool."""
    place = store()
    operator = place.operator(name) if name else _chosen(session, place)
    change = place.selecting(operator.name)
    if session.dry_run:
        raise DryRunError(Planned(str(change.path), (change.text or "").encode()))
    place.apply(change)
    if json:
        output.emit_json({"name": operator.name})
    else:
        output.emit(f'Selected operator "{safe(operator.name)}" as default')


def _chosen(session: Session, place: NscStore) -> Operator:
    """Return the operator that a person picks, even if one is selected; the only one elsewhere."""
    names = place.names()
    if len(names) > 1:
        return place.operator(picked(session, None, "OPERATOR", "Select an Operator", names))
    return picked_operator(session, place, None)


def import_jwt(
    session: Session,
    token: Annotated[Path, Argument(metavar="JWT_FILE", help="the file with the operator's JWT")],
    keys: Annotated[list[Path] | None, Argument(metavar="KEY_FILE...", help="the files with its seeds")] = None,
    json: Json = False,
) -> None:
    """Import an operator: its JWT, and the seeds of its key and of all its signing keys."""
    place = store()
    read_file(token)
    operator = imported(token_in(str(token)), str(token), [read_key(path) for path in keys or ()])
    save(session, place, operator)
    _show(operator, json)


def backup(
    session: Session,
    name: Annotated[str, Argument(metavar="OPERATOR", help="the operator, by name or public key")],
    target: Annotated[Path, Argument(metavar="FILE", help="the file to write")],
    key: Annotated[Path | None, Option("--key", metavar="FILE", help="a curve key to encrypt it with")] = None,
    force: Annotated[bool, Option("--force", "-f", help="replace a file that is no backup of this operator")] = False,
    json: Json = False,
) -> None:
    """Save an operator with its accounts, users and private keys in a file that the nats tool can restore.

    An earlier backup of the operator is replaced, any other file only with --force.
    """
    place = store()
    operator = place.operator(name)
    seal = read_key(key) if key else None
    content = backup_of(operator, seal)
    if not force:
        _check_replaceable(target, operator, seal)
    write_private(session, target, content, "private keys")
    if json:
        output.emit_json({"name": operator.name, "file": str(target)})
        return
    output.emit(f"Wrote backup for {safe(operator.name)} to {safe(str(target))}")
    if key is None:
        output.note("warning: the file has private keys and is not encrypted; --key encrypts it with a curve key")


def _check_replaceable(path: Path, operator: Operator, key: KeyPair | None) -> None:
    """Raise ConflictError for a file that exists and is not a backup of the operator that this key opens."""
    if not path.exists():
        return
    found: Operator | None = None
    with suppress(NatsctlError):
        found = restored(read_file(path), str(path), key)
    if found is None or found.subject != operator.subject:
        about = f"is a backup of operator {found.name}" if found else f"exists and is no backup of {operator.name}"
        raise ConflictError(f"{path} {about}", hint="--force replaces it")


def restore(
    session: Session,
    name: Annotated[str, Argument(metavar="NAME", help="name of the operator in the backup")],
    source: Annotated[Path, Argument(metavar="FILE", help="the backup")],
    key: Annotated[Path | None, Option("--key", metavar="FILE", help="the curve key that it is encrypted with")] = None,
    json: Json = False,
) -> None:
    """Restore an operator that does not exist from a backup of natsctl or the nats tool."""
    place = store()
    if name in place.names():
        raise ConflictError(f"operator {name} already exists")
    operator = restored(read_file(source), str(source), read_key(key) if key else None)
    if operator.name != name:
        raise UsageError(f"{source} is a backup of operator {operator.name}, not of {name}")
    save(session, place, operator)
    _show(operator, json)


# -- signing keys


def keys_ls(session: Session, name: MaybeOperator = None, json: Json = False) -> None:
    """List an operator's public signing keys."""
    found = picked_operator(session, store(), name).signing_key_names
    output.emit_json(found) if json else output.emit_names(found)


def keys_add(session: Session, name: MaybeOperator = None, json: Json = False) -> None:
    """Make a signing key for an operator, and show its public key."""
    place = store()
    operator = picked_operator(session, place, name)
    key = operator.add_signing_key()
    save(session, place, operator)
    output.emit_json({"key": key.public}) if json else output.emit(key.public)


def keys_rm(
    session: Session,
    name: Annotated[str, Argument(metavar="OPERATOR", help="the operator, by name or public key")],
    key: Annotated[str, Argument(metavar="SIGNING_KEY", help="the public signing key")],
    force: Force = False,
    json: Json = False,
) -> None:
    """Remove a signing key of an operator; servers no longer trust the accounts that it has signed."""
    place = store()
    check_consent(session, f"remove the signing key {key} of operator {name}", force)
    operator = place.operator(name)
    signed = [safe(account.name) for account in operator.remove_signing_key(key)]
    about = f", which has signed {', '.join(signed)}," if signed else ""
    if not confirmed(session, f"remove the signing key {key}{about} of operator {operator.name}", force):
        return
    save(session, place, operator)
    if json:
        output.emit_json({"key": key, "removed": True, "signed": signed})
        return
    output.emit("Signing key removed")
    if signed:
        output.note(
            f"warning: servers no longer trust {', '.join(signed)}: sign them again with natsctl auth account edit"
        )


KEY_VERBS = (
    verb("list, ls", keys_ls, "cli.auth.operators:PublicKey[]"),
    verb("add, new, create", keys_add, "cli.auth.operators:SigningKey"),
    verb("rm, delete", keys_rm, "cli.auth.operators:RemovedKey"),
)

_ONE = "cli.auth.operators:StoredOperator"

PublicKey = str
"""A public key as text."""

VERBS = (
    verb("add", add, _ONE, "natsctl auth operator add ACME --service nats://nats.acme.example:4222"),
    verb("info, show, view, i", info, _ONE),
    verb("ls, list", ls, "cli.auth.operators:ListedOperator[]|cli.auth.operators:PublicKey[]"),
    verb("edit, update", edit, _ONE, "natsctl auth operator edit ACME --tags production"),
    verb("import", import_jwt, _ONE, "natsctl auth operator import ACME.jwt identity.nk signing.nk"),
    verb("select", select, "cli.auth.operators:SelectedOperator"),
    verb(
        "backup",
        backup,
        "cli.auth.operators:WrittenFile",
        "natsctl auth operator backup ACME acme.sealed --key backup.xk",
    ),
    verb("restore", restore, _ONE, "natsctl auth operator restore ACME acme.sealed --key backup.xk"),
    Verb("keys, sk, s", KEY_VERBS, "Manage an operator's signing keys"),
)
