"""`natsctl context add`, `copy` and `edit`: what makes and changes contexts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.context.files import MaybeName, Name, carry_out, known, of_user, picked, show
from natsctl.cli.options import Force, IfNotExists, Json, session_of
from natsctl.client.contexts.file import EMPTY, Document, complete, embedded, redacted, said_by
from natsctl.client.contexts.store import ContextExists, Contexts

if TYPE_CHECKING:
    from natsctl.cli.render.change import Change
    from natsctl.cli.session import Session

Description = Annotated[
    str | None, typer.Option("--description", metavar="TEXT", help="its purpose", show_default=False)
]
Select = Annotated[bool, typer.Option("--select", help="select it")]
Embed = Annotated[bool, typer.Option("--embed", help="store the content of --creds, --nkey, --jwt and --seed in it")]


def add(
    ctx: typer.Context,
    name: Name,
    description: Description = None,
    select: Select = False,
    embed: Embed = False,
    if_not_exists: IfNotExists = False,
    json: Json = False,
) -> None:
    """Create a context from the flags for server and login, or change one with them.

    The flags are those of every command, such as --server, --creds, --user, --tlsca and --js-domain. Secrets need not
    be on the command line: --password-stdin and --token-stdin read stdin, and values such as env://NAME, file:///path
    or op://vault/item/field are looked up when the context is used.
    """
    session, contexts = session_of(ctx), of_user()
    exists = contexts.exists(name)
    if not (exists and if_not_exists):
        before = contexts.document(name) if exists else {}
        _save(session, contexts, name, {**before, **_said(session, description)}, embed, select)
    show(contexts, name, json=json)


def copy(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="CONTEXT", help="the context to copy")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="the context to create")],
    description: Description = None,
    select: Select = False,
    embed: Embed = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="replace an existing one")] = False,
    json: Json = False,
) -> None:
    """Copy a context, adjusted by the flags for server and login."""
    session, contexts = session_of(ctx), of_user()
    document = contexts.document(known(contexts, source))
    if contexts.exists(name) and not force:
        raise ContextExists(f"context {name} exists already", hint="--force replaces it")
    _save(session, contexts, name, {**document, **_said(session, description)}, embed, select)
    show(contexts, name, json=json)


def edit(
    ctx: typer.Context,
    name: MaybeName = None,
    description: Description = None,
    select: Select = False,
    embed: Embed = False,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="remove the value of a key such as js_domain")
    ] = None,
    interactive: Annotated[bool, typer.Option("--interactive", "-i", help="edit it in $EDITOR")] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Change a context with the flags for server and login, or in $EDITOR."""
    session, contexts = session_of(ctx), of_user()
    chosen = picked(session, contexts, name)
    before, said = contexts.document(chosen), {**_said(session, description), **_unset(unset)}
    if interactive or not (said or embed or select or not session.interactive):
        wanted = {**_in_editor(session, before, chosen), **said}
    elif said or embed or select:
        wanted = {**before, **said}
    else:
        raise UsageError("nothing to change: give flags such as --server, --unset, or -i for $EDITOR")
    wanted = complete(embedded(wanted) if embed else wanted)
    found = _differences(before, wanted)
    if session.dry_run:
        from natsctl.cli.editing import preview_edit

        preview_edit(session, found, lambda: _save(session, contexts, chosen, wanted, False, select), json=json)
        return
    if found and not json:
        from natsctl.cli.editing import show_differences

        show_differences(found, f"context {chosen}")
    _save(session, contexts, chosen, wanted, False, select)
    show(contexts, chosen, json=json)


def _said(session: Session, description: str | None) -> Document:
    """The keys that the flags set."""
    said = said_by(session.options.settings())
    if session.options.timeout is not None and not session.json:
        output.note("--timeout is not saved in contexts: it only applies to this command")
    return said if description is None else {**said, "description": description}


_FLAGS = {
    "server": "url",
    "js_domain": "jetstream_domain",
    "js_api_prefix": "jetstream_api_prefix",
    "js_event_prefix": "jetstream_event_prefix",
    "tlscert": "cert",
    "tlskey": "key",
    "tlsca": "ca",
    "tlsfirst": "tls_first",
    "jwt": "user_jwt",
    "seed": "user_seed",
    "colors": "color_scheme",
}
"""Keys by the flags that set them, where they differ."""


def _unset(words: Sequence[str] | None) -> Document:
    """The keys that are taken away, as the `nats` tool writes keys that are not set."""
    taken: Document = {}
    for word in [one for text in words or () for one in text.replace(",", " ").split()]:
        key = word.lstrip("-").replace("-", "_")
        key = _FLAGS.get(key, key)
        if key not in EMPTY:
            from natsctl.cli.suggest import did_you_mean

            raise UsageError(f"--unset {word}: no such key", hint=did_you_mean(key, [*EMPTY, *_FLAGS]))
        taken[key] = EMPTY[key]
    return taken


def _in_editor(session: Session, before: Document, name: str) -> Document:
    """The document as the person left it in the editor; keys that were taken away are not set."""
    from natsctl.cli.editor import edit_config
    from natsctl.client.contexts.file import Keys

    said = {key: value for key, value in before.items() if value not in ("", None, False)}
    return {**dict(EMPTY), **edit_config(session, said, Keys, f"context {name}")}


def _differences(before: Document, wanted: Document) -> list[Change]:
    """What changes, secrets hidden."""
    from natsctl.cli.render.change import Change, changes

    old, new = redacted(before), redacted(wanted)
    return [Change(one.path, old.get(one.path), new.get(one.path)) for one in changes(before, wanted)]


def _save(session: Session, contexts: Contexts, name: str, document: Document, embed: bool, select: bool) -> None:
    """Write a context, and select it if asked."""
    whole = complete(embedded(document) if embed else document)
    writes = [contexts.save(name, whole)]
    if select:
        writes += contexts.selecting(name)
    carry_out(session, writes, redacted(whole))
