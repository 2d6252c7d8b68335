"""`natsctl context ls`, `info` and `validate`: which contexts there are, and whether they can be used."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from natsctl.api.errors import UsageError
from natsctl.api.exit_codes import ExitCode
from natsctl.cli import output
from natsctl.cli.context.files import (
    Connect,
    MaybeName,
    ShowSecrets,
    current,
    described,
    known,
    of_user,
    show,
    tell_overridden,
)
from natsctl.cli.options import Json, session_of
from natsctl.client.contexts.check import Checked, check
from natsctl.client.contexts.store import ContextNotFound, Contexts


def ls(
    ctx: typer.Context,
    names: Annotated[bool, typer.Option("--names", "-n", help="names only, one on a line")] = False,
    show_secrets: ShowSecrets = False,
    json: Json = False,
) -> None:
    """List the contexts; the selected one has a star."""
    contexts = of_user()
    found = contexts.names()
    if names:
        output.emit_json(found) if json else output.emit_names(found)
        return
    documents = [_listed(contexts, name, show_secrets) for name in found]
    if json:
        output.emit_json(documents)
    elif documents:
        from natsctl.cli.render.context import render_contexts
        from natsctl.cli.screen import show_table

        show_table(render_contexts(documents))
    else:
        output.emit("No contexts defined")


def _listed(contexts: Contexts, name: str, show_secrets: bool) -> dict[str, Any]:
    """A context for the list; one that can not be read says why, and keeps none of the others from being shown."""
    try:
        return described(contexts, name, contexts.document(name), show_secrets=show_secrets)
    except UsageError as failure:
        return described(contexts, name, {"fault": str(failure)})


def info(
    ctx: typer.Context,
    name: MaybeName = None,
    connect: Connect = False,
    show_secrets: ShowSecrets = False,
    json: Json = False,
) -> None:
    """Show a context [the selected one]."""
    session, contexts = session_of(ctx), of_user()
    chosen = name or current(session, contexts)
    if not chosen:
        raise ContextNotFound("no context is selected", contexts.names())
    known(contexts, chosen)
    more: dict[str, Any] = {}
    if connect:
        found = _checked(contexts, [chosen], True, session.options.timeout)[0]
        more = {"connection": found.server, **({"fault": found.fault} if found.fault else {})}
    show(contexts, chosen, json=json, show_secrets=show_secrets, **more)
    if more.get("fault"):
        raise typer.Exit(ExitCode.FAILED)


def validate(ctx: typer.Context, name: MaybeName = None, connect: Connect = False, json: Json = False) -> None:
    """Check one context or all of them: the file, the secrets that it points to and the URLs.

    Ends with 1 if one of them cannot be used.
    """
    session, contexts = session_of(ctx), of_user()
    found = _checked(contexts, [known(contexts, name)] if name else contexts.names(), connect, session.options.timeout)
    if json:
        output.emit_json([_document(one) for one in found])
    elif found:
        from natsctl.cli.render.context import render_checks
        from natsctl.cli.screen import show_table

        show_table(render_checks(found))
        tell_overridden()
    else:
        output.emit("No contexts defined")
    if any(one.fault for one in found):
        raise typer.Exit(ExitCode.FAILED)


def _checked(contexts: Contexts, names: Sequence[str], connecting: bool, timeout_s: float | None) -> list[Checked]:
    async def each() -> list[Checked]:
        return [await check(contexts, name, connecting=connecting, timeout_s=timeout_s) for name in names]

    return asyncio.run(each())


def _document(one: Checked) -> dict[str, Any]:
    document: dict[str, Any] = {"name": one.name, "valid": not one.fault, "fault": one.fault}
    return {**document, "connection": one.server} if one.server else document
