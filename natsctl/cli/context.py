"""Contexts, servers and logins by name: `natsctl context`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import field

from natsctl.api.errors import ConflictError, ExitCode, UsageError
from natsctl.api.model import Duration, Model
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import confirmed
from natsctl.cli.framework.flags import Force, IfNotExists, Json, MissingOk
from natsctl.cli.framework.globals import CONTEXT_KEYS
from natsctl.cli.framework.parameters import Argument, ExitError, Option
from natsctl.cli.framework.prompts import prompt_name
from natsctl.cli.framework.resolve import did_you_mean
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.render.page import Page
from natsctl.cli.render.tables import Table, render_table
from natsctl.cli.render.text import duration, safe
from natsctl.client.context_file import EMPTY, Document, Keys, complete, document_of, embedded, redacted
from natsctl.client.contexts import ContextNotFoundError, Contexts, write
from natsctl.client.message import DryRunError, Planned
from natsctl.client.servers import DEFAULT_URL, CheckedContext, check
from natsctl.client.settings import expand_path, overriding

if TYPE_CHECKING:
    from natsctl.cli.render.change import FieldChange
    from natsctl.client.atomic_file import FileChange


_ROWS = (
    ("Username", "user"),
    ("Password", "password"),
    ("Token", "token"),
    ("Credentials", "creds"),
    ("NKey", "nkey"),
    ("JWT", "user_jwt"),
    ("User Seed", "user_seed"),
    ("Certificate", "cert"),
    ("Key", "key"),
    ("CA", "ca"),
    ("NSC Lookup", "nsc"),
    ("JS API Prefix", "jetstream_api_prefix"),
    ("JS Event Prefix", "jetstream_event_prefix"),
    ("JS Domain", "jetstream_domain"),
    ("Inbox Prefix", "inbox_prefix"),
    ("SOCKS5 Proxy", "socks_proxy"),
    ("Color Scheme", "color_scheme"),
    ("Windows Cert Store", "windows_cert_store"),
    ("Windows Cert Match", "windows_cert_match"),
)
_FILES = ("creds", "nkey", "cert", "key", "ca")


def render_context(document: Mapping[str, Any]) -> Page:
    chosen = " (selected)" if document["selected"] else ""
    page = Page(f"Context {safe(document['name'])}{chosen}")
    rows = page.section()
    rows.maybe("Description", safe(str(document.get("description") or "")))
    rows.many("Server URLs", [safe(url.strip()) for url in str(document.get("url") or DEFAULT_URL).split(",")])
    for label, key in _ROWS:
        rows.maybe(label, _value(key, str(document.get(key) or "")))
    if document.get("tls_first"):
        rows.row("TLS First", "true")
    rows.row("Path", safe(str(document["path"])))
    if "connection" in document:
        rows.row("Connection", reached(document["connection"], str(document.get("fault", ""))))
    return page


def _value(key: str, value: str) -> str:
    plain = key in _FILES and value and "://" not in value and not value.startswith("*")
    absent = plain and not Path(expand_path(value)).is_file()
    return safe(value) + (" (no such file)" if absent else "")


def reached(server: Mapping[str, Any] | None, fault: str) -> str:
    if server is None:
        return safe(fault)
    return safe(f"{server['server_name']} {server['version']} at {server['url']}, {duration(server['rtt'])}")


def render_contexts(documents: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        (
            document["name"] + ("*" if document["selected"] else ""),
            str(document.get("fault") or document.get("description") or ""),
            ", ".join(url.strip() for url in str(document.get("url") or "").split(",")),
        )
        for document in documents
    ]
    # The fault of a context takes the place of its description.
    least = () if any(document.get("fault") for document in documents) else ("Description",)
    return render_table("Known Contexts", ("Name", "Description", "Server URLs"), rows, least=least)


def render_checks(found: Sequence[CheckedContext]) -> Table:
    rows = [(one.name, one.fault or "OK", reached(one.server, "") if one.server else "") for one in found]
    connected = any(one.server for one in found)
    columns = ("Name", "Result", "Connection") if connected else ("Name", "Result")
    return render_table("Contexts", columns, [row[: len(columns)] for row in rows])


_ONE = "cli.context:Context"


Name = Annotated[str, Argument(metavar="CONTEXT", help="the context")]
MaybeName = Annotated[str | None, Argument(metavar="CONTEXT", help="the context")]
ShowSecrets = Annotated[bool, Option("--show-secrets", help="show passwords, tokens and keys")]
Connect = Annotated[bool, Option("--connect", help="connect with it, and show the server's report")]


def of_user() -> Contexts:
    return Contexts(os.environ)


def known(contexts: Contexts, name: str) -> str:
    if not contexts.exists(name):
        failure = ContextNotFoundError(f"unknown context {name!r}", contexts.names())
        failure.hint = did_you_mean(name, failure.known) or failure.hint
        raise failure
    return name


def current(session: Session, contexts: Contexts) -> str:
    return session.options.context or os.environ.get("NATS_CONTEXT", "") or contexts.selected()


def carry_out(session: Session, writes: Sequence[FileChange], shown: Document | None = None) -> None:
    """Write the files, or end a dry run with them; `shown` replaces the content of the first one."""
    if session.dry_run:
        bodies: list[Any] = [one.text.encode() if one.text is not None else None for one in writes]
        if shown is not None:
            bodies[0] = shown
        files = [Planned(str(one.path), body) for one, body in zip(writes, bodies, strict=True)]
        gone = [str(one.path) for one in writes if one.text is None]
        raise DryRunError(*files, effect={"removes": gone} if gone else None)
    for one in writes:
        write(one)


def described(contexts: Contexts, name: str, document: Document, *, show_secrets: bool = False) -> dict[str, Any]:
    """Return the document for -j: the file's content, with secrets hidden, and what natsctl knows about it."""
    whole = document if show_secrets else redacted(document)
    path = str(contexts.path(name))
    return {"name": name, "selected": name == contexts.selected(), "path": path, **whole}


def show(contexts: Contexts, name: str, *, json: bool, show_secrets: bool = False, **more: Any) -> None:
    """Show a context: its page, or its document with `more`; a note names the fields that the environment overrides."""
    document = described(contexts, name, contexts.document(name), show_secrets=show_secrets)
    if json:
        output.emit_json({**document, **more})
        return
    output.show_page(render_context({**document, **more}))
    warn_overridden()


def warn_overridden() -> None:
    if names := overriding(os.environ):
        output.note(f"warning: the environment overrides contexts: {', '.join(names)}")


def picked(session: Session, contexts: Contexts, given: str | None) -> str:
    if given:
        return known(contexts, given)
    if not session.interactive:
        raise UsageError("a context is needed: give CONTEXT")
    if not (names := contexts.names()):
        raise ContextNotFoundError("no contexts are defined", [])
    return prompt_name("Select a Context", names)


def select(session: Session, name: MaybeName = None, json: Json = False) -> None:
    """Select the context that commands use by default."""
    contexts = of_user()
    chosen = picked(session, contexts, name)
    carry_out(session, contexts.select(chosen))
    show(contexts, chosen, json=json)


def previous(session: Session, json: Json = False) -> None:
    """Go back to the context that was selected before."""
    contexts = of_user()
    before = contexts.previous()
    if not before:
        raise ContextNotFoundError("no context was selected before", contexts.names())
    carry_out(session, contexts.select(known(contexts, before)))
    show(contexts, before, json=json)


def unselect(session: Session, json: Json = False) -> None:
    """Select no context."""
    contexts = of_user()
    before = contexts.selected()
    carry_out(session, contexts.unselect())
    if json:
        output.emit_json({"name": before})
    else:
        output.note(f"Context {safe(before)} is no longer selected" if before else "No context was selected")


def rm(session: Session, name: Name, force: Force = False, missing_ok: MissingOk = False, json: Json = False) -> None:
    """Remove a context; the selected one stays until it is unselected."""
    contexts = of_user()
    exists = contexts.exists(name) if missing_ok else bool(known(contexts, name))
    if exists:
        removal = contexts.remove(name)
        if not confirmed(session, f"remove context {name}", force, typed=name):
            return
        carry_out(session, [removal])
    if json:
        output.emit_json({"name": name, "removed": exists})
    else:
        output.note(f"Context {safe(name)} was removed" if exists else f"There is no context {safe(name)}")


Description = Annotated[str | None, Option("--description", metavar="TEXT", help="its purpose")]
Select = Annotated[bool, Option("--select", help="select it")]
Nsc = Annotated[
    str | None, Option("--nsc", metavar="URL", help="log in as a user of nsc's store, nsc://OPERATOR/ACCOUNT/USER")
]
Embed = Annotated[bool, Option("--embed", help="store the content of --creds, --nkey, --jwt and --seed in it")]


def add(
    session: Session,
    name: Name,
    description: Description = None,
    nsc: Nsc = None,
    select: Select = False,
    embed: Embed = False,
    if_not_exists: IfNotExists = False,
    json: Json = False,
) -> None:
    """Create a context from the flags for server and login, or change one with them.

    The flags are the global ones, such as --server, --creds, --user, --tlsca and --js-domain. Secrets need not
    be on the command line: --password-stdin and --token-stdin read stdin, and values such as env://NAME, file:///path
    or op://vault/item/field are looked up when the context is used.
    """
    contexts = of_user()
    exists = contexts.exists(name)
    if not (exists and if_not_exists):
        before = contexts.document(name) if exists else {}
        _save(session, contexts, name, {**before, **_said(session, description, nsc, before)}, embed, select)
    show(contexts, name, json=json)


def copy(
    session: Session,
    source: Annotated[str, Argument(metavar="CONTEXT", help="the context to copy")],
    name: Annotated[str, Argument(metavar="NAME", help="the context to create")],
    description: Description = None,
    nsc: Nsc = None,
    select: Select = False,
    embed: Embed = False,
    force: Annotated[bool, Option("--force", "-f", help="replace an existing one")] = False,
    json: Json = False,
) -> None:
    """Copy a context, adjusted by the flags for server and login."""
    contexts = of_user()
    document = contexts.document(known(contexts, source))
    if contexts.exists(name) and not force:
        raise ConflictError(f"context {name} exists already", hint="--force replaces it")
    _save(session, contexts, name, {**document, **_said(session, description, nsc, document)}, embed, select)
    show(contexts, name, json=json)


def edit(
    session: Session,
    name: MaybeName = None,
    description: Description = None,
    nsc: Nsc = None,
    select: Select = False,
    embed: Embed = False,
    unset: Annotated[
        list[str] | None, Option("--unset", metavar="KEY", help="remove the value of a key such as js_domain")
    ] = None,
    interactive: Annotated[bool, Option("--interactive", "-i", help="edit it in $EDITOR")] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Change a context with the flags for server and login, or in $EDITOR."""
    contexts = of_user()
    chosen = picked(session, contexts, name)
    before = contexts.document(chosen)
    said = {**_said(session, description, nsc, before), **_unset(unset)}
    if interactive or not (said or embed or select or not session.interactive):
        wanted = {**_in_editor(session, before, chosen), **said}
    elif said or embed or select:
        wanted = {**before, **said}
    else:
        raise UsageError("nothing to change: give flags such as --server, --unset, or -i for $EDITOR")
    wanted = complete(embedded(wanted) if embed else wanted)
    found = _differences(before, wanted)
    if session.dry_run:
        from natsctl.cli.assets import preview_edit

        preview_edit(session, found, lambda: _save(session, contexts, chosen, wanted, False, select), json=json)
        return
    if found and not json:
        from natsctl.cli.assets import show_differences

        show_differences(found, f"context {chosen}")
    _save(session, contexts, chosen, wanted, False, select)
    show(contexts, chosen, json=json)


def _said(session: Session, description: str | None, nsc: str | None, before: Document) -> Document:
    """Return the keys that the flags set; a context without a server gets those of the operator in nsc's store."""
    said = document_of(session.options.settings())
    if nsc is not None:
        from natsctl.client.auth.nsc_profile import profile_of

        if "creds" in said:
            raise UsageError("--nsc and --creds exclude each other")
        services = profile_of(nsc, os.environ).services
        said["creds"] = nsc
        if services and "url" not in said and not before.get("url"):
            said["url"] = ",".join(services)
    if session.options.timeout is not None and not session.json:
        output.note("--timeout is not saved in contexts: it only applies to this command")
    return said if description is None else {**said, "description": description}


def _unset(words: Sequence[str] | None) -> Document:
    """Return the keys to unset, with the empty values that the `nats` tool writes for them."""
    taken: Document = {}
    for word in [one for text in words or () for one in text.replace(",", " ").split()]:
        key = word.lstrip("-").replace("-", "_")
        key = CONTEXT_KEYS.get(key, key)
        if key not in EMPTY:
            raise UsageError(f"--unset {word}: no such key", hint=did_you_mean(key, [*EMPTY, *CONTEXT_KEYS]))
        taken[key] = EMPTY[key]
    return taken


def _in_editor(session: Session, before: Document, name: str) -> Document:
    """Return the document after the user's edit; removed keys are unset."""
    from natsctl.cli.assets import edit_config

    said = {key: value for key, value in before.items() if value not in ("", None, False)}
    return {**dict(EMPTY), **edit_config(session, said, Keys, f"context {name}")}


def _differences(before: Document, wanted: Document) -> list[FieldChange]:
    from natsctl.cli.render.change import FieldChange, changes

    old, new = redacted(before), redacted(wanted)
    return [FieldChange(change.path, old.get(change.path), new.get(change.path)) for change in changes(before, wanted)]


def _save(session: Session, contexts: Contexts, name: str, document: Document, embed: bool, select: bool) -> None:
    whole = complete(embedded(document) if embed else document)
    writes = [contexts.save(name, whole)]
    if select:
        writes += contexts.selecting(name)
    carry_out(session, writes, redacted(whole))


def ls(
    session: Session,
    names: Annotated[bool, Option("--names", "-n", help="names only, one on a line")] = False,
    completion: Annotated[
        bool, Option("--completion", help="NAME:DESCRIPTION, for scripts that complete them", hidden=True)
    ] = False,
    show_secrets: ShowSecrets = False,
    json: Json = False,
) -> None:
    """List the contexts; the selected one has a star."""
    contexts = of_user()
    found = contexts.names()
    if completion and not json:
        selected = contexts.selected()
        described = [(name, _listed(contexts, name, show_secrets=False)) for name in found]
        for name, document in described:
            output.emit(f"{name}{'*' if name == selected else ''}:{safe(str(document.get('description') or ''))}")
        return
    if names or completion:
        output.emit_json(found) if json else output.emit_names(found)
        return
    documents = [_listed(contexts, name, show_secrets) for name in found]
    output.show_list(documents, lambda: render_contexts(documents), "No contexts defined", json=json)
    for document in documents:
        if fault := document.get("fault"):
            session.received.leave_out(fault)


def _listed(contexts: Contexts, name: str, show_secrets: bool) -> dict[str, Any]:
    """Return a context for the list; one that cannot be read has the reason in its row."""
    try:
        return described(contexts, name, contexts.document(name), show_secrets=show_secrets)
    except UsageError as failure:
        return described(contexts, name, {"fault": str(failure)})


def info(
    session: Session,
    name: MaybeName = None,
    connect: Connect = False,
    show_secrets: ShowSecrets = False,
    json: Json = False,
) -> None:
    """Show a context [the selected one]."""
    contexts = of_user()
    chosen = name or current(session, contexts)
    if not chosen:
        raise ContextNotFoundError("no context is selected", contexts.names())
    known(contexts, chosen)
    more: dict[str, Any] = {}
    if connect:
        found = _checked(contexts, [chosen], True, session.options.timeout)[0]
        more = {"connection": found.server, **({"fault": found.fault} if found.fault else {})}
    show(contexts, chosen, json=json, show_secrets=show_secrets, **more)
    if more.get("fault"):
        raise ExitError(ExitCode.FAILED)


def validate(session: Session, name: MaybeName = None, connect: Connect = False, json: Json = False) -> None:
    """Check one context or all of them: the file, the secrets that it points to and the URLs.

    Ends with 1 if one of them cannot be used.
    """
    contexts = of_user()
    found = _checked(contexts, [known(contexts, name)] if name else contexts.names(), connect, session.options.timeout)
    if json:
        output.emit_json([_document(one) for one in found])
    elif found:
        output.show_table(render_checks(found))
        warn_overridden()
    else:
        output.emit("No contexts defined")
    if any(one.fault for one in found):
        raise ExitError(ExitCode.FAILED)


def _checked(
    contexts: Contexts, names: Sequence[str], connecting: bool, timeout_s: float | None
) -> list[CheckedContext]:
    async def each() -> list[CheckedContext]:
        return [await check(contexts, name, connecting=connecting, timeout_s=timeout_s) for name in names]

    return asyncio.run(each())


def _document(one: CheckedContext) -> dict[str, Any]:
    document: dict[str, Any] = {"name": one.name, "valid": not one.fault, "fault": one.fault}
    return {**document, "connection": one.server} if one.server else document


class Reached(Model, kw_only=True):
    """Facts that a server reported on a connection made with a context."""

    url: str
    server_name: str
    version: str
    rtt: Duration


class Context(Keys, kw_only=True):
    """A context; secrets are hidden unless --show-secrets is given."""

    name: str
    selected: bool
    path: str
    connection: Reached | None = None
    fault: str = ""


class Checked(Model, kw_only=True):
    """Result of the check of a context: whether it can be used, and the reason if not."""

    name: str
    valid: bool
    fault: str = field(default_factory=str)
    connection: Reached | None = None


class Removed(Model, kw_only=True):
    """A context that was removed, or that was absent already."""

    name: str
    removed: bool


class Unselected(Model, kw_only=True):
    """The context that was the selected one, "" without one."""

    name: str


VERBS = (
    verb(
        "add, create, save",
        add,
        _ONE,
        "natsctl context add prod -s nats://prod:4222 --creds ~/prod.creds",
        "natsctl context add lab -s lab:4222 --user bob --password-stdin",
        "natsctl context add orders --nsc nsc://ACME/ORDERS/app",
    ),
    verb("edit, vi", edit, _ONE, "natsctl context edit prod --js-domain hub"),
    verb("copy, cp", copy, _ONE, "natsctl context copy prod stage -s stage:4222"),
    verb("ls, list, l", ls, "cli.context:Context[]"),
    verb("info, show, view, v", info, _ONE),
    verb("validate, check", validate, "cli.context:Checked[]"),
    verb("select, switch, set", select, _ONE, "natsctl context select prod"),
    verb("previous, -", previous, _ONE),
    verb("unselect", unselect, "cli.context:Unselected"),
    verb("rm, remove, delete", rm, "cli.context:Removed"),
)
