"""`natsctl context select`, `previous`, `unselect` and `rm`: which context holds, and which goes."""

from __future__ import annotations

import typer

from natsctl.cli import output
from natsctl.cli.consent import confirmed
from natsctl.cli.context.files import MaybeName, Name, carry_out, known, of_user, picked, show
from natsctl.cli.options import Force, Json, MissingOk, session_of
from natsctl.cli.render.text import safe
from natsctl.client.contexts.store import ContextNotFound


def select(ctx: typer.Context, name: MaybeName = None, json: Json = False) -> None:
    """Select the context that commands use by default."""
    session, contexts = session_of(ctx), of_user()
    chosen = picked(session, contexts, name)
    carry_out(session, contexts.select(chosen))
    show(contexts, chosen, json=json)


def previous(ctx: typer.Context, json: Json = False) -> None:
    """Go back to the context that was selected before."""
    session, contexts = session_of(ctx), of_user()
    before = contexts.previous()
    if not before:
        raise ContextNotFound("no context was selected before", contexts.names())
    carry_out(session, contexts.select(known(contexts, before)))
    show(contexts, before, json=json)


def unselect(ctx: typer.Context, json: Json = False) -> None:
    """Select no context."""
    session, contexts = session_of(ctx), of_user()
    before = contexts.selected()
    carry_out(session, contexts.unselect())
    if json:
        output.emit_json({"name": before})
    else:
        output.note(f"Context {safe(before)} is no longer selected" if before else "No context was selected")


def rm(ctx: typer.Context, name: Name, force: Force = False, missing_ok: MissingOk = False, json: Json = False) -> None:
    """Remove a context; the selected one stays until it is unselected."""
    session, contexts = session_of(ctx), of_user()
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
