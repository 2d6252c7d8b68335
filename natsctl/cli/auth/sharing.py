"""Exports and imports of accounts: `natsctl auth account exports` and `imports`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from natsctl.api.errors import UsageError
from natsctl.api.subjects import is_valid_name
from natsctl.cli.auth.account_settings import Removed, show_list, store_account
from natsctl.cli.auth.selection import CHOSEN, AccountFlags, MaybeOperator, picked
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import confirmed
from natsctl.cli.framework.flags import Force, Json
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import Verb, verb
from natsctl.cli.render.page import Page
from natsctl.cli.render.text import count, safe, stamp, yes
from natsctl.client.auth.account_claims import (
    SERVICE,
    STREAM,
    Sharing,
    bucket_exports,
    bucket_imports,
    local_subject,
    remote_subject,
)
from natsctl.client.auth.claims import Document, put
from natsctl.client.auth.keys import kind_of
from natsctl.client.auth.nsc_store import NscStore
from natsctl.client.auth.operators import ManagedAccount, Operator

Subject = Annotated[str, Argument(metavar="SUBJECT", help="the subject")]
EntryName = Annotated[str, Argument(metavar="NAME", help="a name for it")]
Service = Annotated[bool, Option("--service", help="a service instead of a stream")]
Bucket = Annotated[str, Argument(metavar="BUCKET", help="name of the bucket")]


Commands = tuple[Any, Any, Any, Any]


def _named(operator: Operator, subject: str) -> str:
    return next((account.name for account in operator.accounts if account.subject == subject), subject)


def _picked(session: Session, sharing: Sharing, subject: str | None) -> Document:
    """Return the entry of a subject, that of the user's choice without one; raises UsageError, EntityNotFoundError."""
    text, none = f"Select an {sharing.kind.capitalize()}", f"account {sharing.account.name} has no {sharing.kind}s"
    return sharing.find(picked(session, subject, "SUBJECT", text, sharing.subjects(), none))


def _show(sharing: Sharing, entry: Document, json: bool) -> None:
    if json:
        output.emit_json(entry)
    elif sharing.kind == "import":
        output.show_page(render_import(entry, sharing.account.operator))
    else:
        output.show_page(render_export(entry))


def _info_of(kind: str, about: str) -> Callable[..., None]:
    def info(
        session: Session,
        subject: Annotated[str | None, Argument(metavar="SUBJECT", help="the subject")] = None,
        chosen: AccountFlags = CHOSEN,
        json: Json = False,
    ) -> None:
        sharing = Sharing(kind, chosen.find(session)[1])
        _show(sharing, _picked(session, sharing, subject), json)

    info.__doc__ = about
    return info


def _rm_of(kind: str, about: str) -> Callable[..., None]:
    def rm(session: Session, subject: Subject, chosen: AccountFlags, force: Force = False, json: Json = False) -> None:
        store, found = chosen.find(session)
        sharing = Sharing(kind, found)
        entry = sharing.find(subject)
        what = f"the {entry.get('type')} {kind} {subject}"
        if not confirmed(session, f"remove {what} of account {found.name}", force):
            return
        sharing.remove(entry)
        store_account(session, store, found)
        output.emit_json(Removed(subject)) if json else output.emit(f"Removed {safe(what)}")

    rm.__doc__ = about
    return rm


# -- exports


def render_export(entry: Document) -> Page:
    page = Page(f"Export info for {safe(entry.get('name', ''))} exporting {safe(entry['subject'])}")
    rows = page.section("Configuration")
    rows.row("Name", safe(entry.get("name", "")))
    rows.maybe("Description", safe(entry.get("description", "")))
    rows.row("Kind", str(entry.get("type", "")).capitalize())
    rows.maybe("Info", safe(entry.get("info_url", "")))
    rows.row("Subject", safe(entry["subject"]))
    rows.row("Activation Required", yes(entry.get("token_req")))
    rows.row("Account Token Position", count(entry.get("account_token_position", 0)))
    rows.row("Advertised", yes(entry.get("advertise")))
    rows = page.section("Revocations")
    revoked = sorted((entry.get("revocations") or {}).items())
    for key, at_s in revoked:
        rows.row(stamp(at_s * 10**9), safe(key))
    if not revoked:
        rows.line("No revocations found")
    return page


Description = Annotated[str | None, Option("--description", metavar="TEXT", help="a description")]
Url = Annotated[str | None, Option("--url", metavar="URL", help="a URL with more about it")]
TokenPosition = Annotated[
    int | None,
    Option("--token-position", metavar="N", help="the token of the subject that is the importing account's key", min=0),
]


def export_add(
    session: Session,
    name: EntryName,
    subject: Subject,
    chosen: AccountFlags,
    description: Description = None,
    url: Url = None,
    token_position: TokenPosition = None,
    advertise: Annotated[bool, Option("--advertise", help="show it to others")] = False,
    service: Service = False,
    json: Json = False,
) -> None:
    """Export a subject, so that other accounts can import it."""
    store, found = chosen.find(session)
    entry = {
        "name": name,
        "subject": subject,
        "type": SERVICE if service else STREAM,
        "account_token_position": token_position or 0,
        "advertise": advertise,
        "description": description or "",
        "info_url": url or "",
    }
    sharing = Sharing("export", found)
    sharing.add(entry)
    store_account(session, store, found)
    _show(sharing, sharing.find(subject), json)


def export_edit(
    session: Session,
    subject: Subject,
    chosen: AccountFlags,
    description: Description = None,
    url: Url = None,
    token_position: TokenPosition = None,
    advertise: Annotated[bool | None, Option("--advertise/--no-advertise", help="show it to others")] = None,
    json: Json = False,
) -> None:
    """Change the given fields of an export."""
    store, found = chosen.find(session)
    sharing = Sharing("export", found)
    entry = sharing.find(subject)
    wanted = {
        "description": description,
        "info_url": url,
        "account_token_position": token_position,
        "advertise": advertise,
    }
    given = {key: value for key, value in wanted.items() if value is not None}
    if not given:
        raise UsageError("nothing to change was given", hint="give --description, --url, --token-position, --advertise")
    _change(session, store, sharing, entry, given, json)


def _change(
    session: Session, store: NscStore, sharing: Sharing, entry: Document, given: Mapping[str, Any], json: bool
) -> None:
    for key, value in given.items():
        put(entry, key, value)
    store_account(session, store, sharing.account)
    _show(sharing, entry, json)


def export_ls(session: Session, chosen: AccountFlags, json: Json = False) -> None:
    """List the exports of an account."""
    _, found = chosen.find(session)
    entries = Sharing("export", found).entries
    rows = [
        (
            str(entry.get("name", "")), str(entry.get("type", "")).capitalize(), str(entry["subject"]),
            yes(entry.get("token_req")), yes(entry.get("advertise")), count(entry.get("account_token_position", 0)),
            count(len(entry.get("revocations") or ())),
        )
        for entry in entries
    ]  # fmt: skip
    columns = ("Name", "Kind", "Subject", "Activation Required", "Advertised", "Token Position", "Revocations")
    show_list(f"Exports for account {safe(found.name)}", columns, rows, entries, "No Exports defined", json)


def export_kv(session: Session, bucket: Bucket, chosen: AccountFlags, json: Json = False) -> None:
    """Export everything that another account needs to use a key-value bucket."""
    store, found = chosen.find(session)
    _add_all(session, store, Sharing("export", found), bucket_exports(_bucket(bucket)), json)


def _bucket(name: str) -> str:
    if not is_valid_name(name):
        raise UsageError(f"{name!r} is no name of a bucket")
    return name


def _add_all(session: Session, store: NscStore, sharing: Sharing, entries: Sequence[Document], json: bool) -> None:
    for entry in entries:
        sharing.add(entry)
    store_account(session, store, sharing.account)
    if json:
        output.emit_json(entries)
        return
    for entry in entries:
        kind = "Service" if entry["type"] == SERVICE else "Stream"
        output.emit(f"{sharing.kind.capitalize()}ed {kind} Subject: {safe(sharing.subject_of(entry))}")


# -- imports


def render_import(entry: Document, operator: Operator) -> Page:
    local, source = local_subject(entry), str(entry.get("account", ""))
    name = _named(operator, source)
    page = Page(f'Import info for import "{safe(entry.get("name", ""))}" importing "{safe(local)}"')
    rows = page.section("Configuration")
    rows.row("Name", safe(entry.get("name", "")))
    rows.row("From Account", safe(source if name == source else f"{name} ({source})"))
    rows.row("Local Subject", safe(local))
    rows.row("Kind", str(entry.get("type", "")).capitalize())
    rows.row("Remote Subject", safe(remote_subject(entry)))
    rows.row("Sharing Connection Info", yes(entry.get("share")))
    if entry.get("type") == STREAM:
        rows.row("Allows Message Tracing", yes(entry.get("allow_trace")))
    return page


Local = Annotated[str | None, Option("--local", metavar="SUBJECT", help="its subject in this account [the same]")]
Share = Annotated[bool | None, Option("--share/--no-share", help="let the exporter see who connects (of a service)")]
Traceable = Annotated[
    bool | None, Option("--traceable/--no-traceable", help="let traces of messages pass (of a stream)")
]


def import_add(
    session: Session,
    name: EntryName,
    subject: Subject,
    chosen: AccountFlags,
    source: Annotated[
        str | None, Option("--source", metavar="ACCOUNT", help="the account to import from, by name or public key")
    ] = None,
    local: Local = None,
    share: Share = None,
    traceable: Traceable = None,
    service: Service = False,
    json: Json = False,
) -> None:
    """Import a subject that another account exports."""
    store, found = chosen.find(session)
    entry = {
        "name": name,
        "subject": subject,
        "account": _source(session, found, source),
        "local_subject": local or subject,
        "type": SERVICE if service else STREAM,
        "share": bool(share),
        "allow_trace": bool(traceable),
    }
    sharing = Sharing("import", found)
    sharing.add(entry)
    store_account(session, store, found)
    _show(sharing, sharing.find(local or subject), json)


def _source(session: Session, account: ManagedAccount, source: str | None) -> str:
    names = sorted(one.name for one in account.operator.accounts)
    source = picked(session, source, "--source", "Select the Source account", names)
    return source if kind_of(source) == "account" else account.operator.account(source).subject


def import_edit(
    session: Session,
    subject: Subject,
    chosen: AccountFlags,
    local: Local = None,
    share: Share = None,
    traceable: Traceable = None,
    json: Json = False,
) -> None:
    """Change the given fields of an import, named by its subject in this account."""
    store, found = chosen.find(session)
    sharing = Sharing("import", found)
    entry = sharing.find(subject)
    if traceable is not None and entry.get("type") == SERVICE:
        raise UsageError("--traceable: traces pass imports of streams only")
    wanted = {"share": share, "allow_trace": traceable}
    given: dict[str, Any] = {key: value for key, value in wanted.items() if value is not None}
    if local is not None:
        given |= {"local_subject": local, "subject": remote_subject(entry), "to": ""}
    if not given:
        raise UsageError("nothing to change was given", hint="give --local, --share or --traceable")
    _change(session, store, sharing, entry, given, json)


def import_ls(session: Session, chosen: AccountFlags, named_operator: MaybeOperator = None, json: Json = False) -> None:
    """List the imports of an account."""
    _, found = AccountFlags(chosen.account, named_operator or chosen.operator).find(session)
    entries = Sharing("import", found).entries
    rows = [
        (
            str(entry.get("name", "")), str(entry.get("type", "")).capitalize(),
            _named(found.operator, str(entry.get("account", ""))), local_subject(entry), remote_subject(entry),
            yes(entry.get("allow_trace")) if entry.get("type") == STREAM else "", yes(entry.get("share")),
        )
        for entry in entries
    ]  # fmt: skip
    columns = (
        "Name", "Kind", "Source", "Local Subject", "Remote Subject", "Allows Tracing", "Sharing Connection Info",
    )  # fmt: skip
    show_list(f"Imports for account {safe(found.name)}", columns, rows, entries, "No Imports defined", json)


def import_kv(
    session: Session,
    bucket: Bucket,
    prefix: Annotated[str, Argument(metavar="PREFIX", help="subject below which the API of the bucket is reached")],
    source: Annotated[str, Argument(metavar="SOURCE", help="the account to import from, by name or public key")],
    chosen: AccountFlags,
    json: Json = False,
) -> None:
    """Import a key-value bucket that another account exports with `exports kv`."""
    store, found = chosen.find(session)
    entries = bucket_imports(_bucket(bucket), prefix, _source(session, found, source))
    _add_all(session, store, Sharing("import", found), entries, json)


def _verbs(
    kind: str, commands: Commands, answer: str, about: tuple[str, str], examples: Sequence[str]
) -> tuple[Verb, ...]:
    """Return the verbs of exports or imports: add, edit, list and kv; `about` is help of info and rm."""
    add, edit, ls, kv = commands
    lines = [(f"natsctl auth account {kind}s {example}",) for example in examples]
    return (
        verb("add, new, a, n", add, answer, *lines[0]),
        verb("info, i, show, view", _info_of(kind, about[0]), answer),
        verb("edit, update", edit, answer, *lines[1]),
        verb("ls, list", ls, f"{answer}[]"),
        verb("rm", _rm_of(kind, about[1]), "cli.auth.account_settings:Removed", *lines[2]),
        verb("kv", kv, f"{answer}[]", *lines[3]),
    )


EXPORT_VERBS = _verbs(
    "export",
    (export_add, export_edit, export_ls, export_kv),
    "natsctl.api.jwt_claims:Export",
    (
        "Show an export.",
        "Remove an export; accounts that import it can no longer use it once this account is pushed.",
    ),
    (
        "add orders 'orders.>' APP",
        "edit 'orders.>' APP --description 'All orders'",
        "rm 'orders.>' APP --force",
        "kv CONFIG APP",
    ),
)
IMPORT_VERBS = _verbs(
    "import",
    (import_add, import_edit, import_ls, import_kv),
    "natsctl.api.jwt_claims:Import",
    ("Show an import by its subject in this account.", "Remove an import by its subject in this account."),
    (
        "add orders 'orders.>' OPS --source APP",
        "edit 'app.orders.>' OPS --local 'in.orders.>'",
        "rm 'in.orders.>' OPS --force",
        "kv CONFIG js.app APP OPS",
    ),
)
