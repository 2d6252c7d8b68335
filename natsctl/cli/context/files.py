"""What the commands about contexts share: the user's files, the context that is meant, and how one is shown."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.client.contexts.file import Document, redacted
from natsctl.client.contexts.store import ContextNotFound, Contexts, Write, write
from natsctl.client.settings import overriding

if TYPE_CHECKING:
    from natsctl.cli.session import Session

Name = Annotated[str, typer.Argument(metavar="CONTEXT", help="the context", show_default=False)]
MaybeName = Annotated[str | None, typer.Argument(metavar="CONTEXT", help="the context", show_default=False)]
ShowSecrets = Annotated[bool, typer.Option("--show-secrets", help="show passwords, tokens and keys")]
Connect = Annotated[bool, typer.Option("--connect", help="connect with it, and show what the server reports")]


def of_user() -> Contexts:
    """The contexts of whoever runs the command."""
    return Contexts(os.environ)


def known(contexts: Contexts, name: str) -> str:
    """The name, if there is such a context; raises ContextNotFound with what may have been meant."""
    if not contexts.exists(name):
        from natsctl.cli.suggest import did_you_mean

        failure = ContextNotFound(f"unknown context {name!r}", contexts.names())
        failure.hint = did_you_mean(name, failure.known) or failure.hint
        raise failure
    return name


def current(session: Session, contexts: Contexts) -> str:
    """The context that a command would use by itself, "" without one."""
    return session.options.context or os.environ.get("NATS_CONTEXT", "") or contexts.selected()


def carry_out(session: Session, writes: Sequence[Write], shown: Document | None = None) -> None:
    """Write the files, or end a dry run with them; `shown` stands for the content of the first one."""
    if session.dry_run:
        from natsctl.client.preview import Planned, Previewed

        bodies: list[Any] = [one.text.encode() if one.text is not None else None for one in writes]
        if shown is not None:
            bodies[0] = shown
        files = [Planned(str(one.path), body) for one, body in zip(writes, bodies, strict=True)]
        gone = [str(one.path) for one in writes if one.text is None]
        raise Previewed(*files, effect={"removes": gone} if gone else None)
    for one in writes:
        write(one)


def described(contexts: Contexts, name: str, document: Document, *, show_secrets: bool = False) -> dict[str, Any]:
    """The document for -j: the file's content, hidden where it is secret, and what natsctl knows about it."""
    whole = document if show_secrets else redacted(document)
    path = str(contexts.path(name))
    return {"name": name, "selected": name == contexts.selected(), "path": path, **whole}


def show(contexts: Contexts, name: str, *, json: bool, show_secrets: bool = False, **more: Any) -> None:
    """Show a context: its page, or its document with what `more` says; what the environment overrides is told."""
    document = described(contexts, name, contexts.document(name), show_secrets=show_secrets)
    if json:
        output.emit_json({**document, **more})
        return
    from natsctl.cli.render.context import render_context
    from natsctl.cli.screen import show_page

    show_page(render_context({**document, **more}))
    tell_overridden()


def tell_overridden() -> None:
    """Warn on stderr of variables that win over every context."""
    if names := overriding(os.environ):
        output.note(f"warning: the environment overrides contexts: {', '.join(names)}")


def picked(session: Session, contexts: Contexts, given: str | None) -> str:
    """The context that was given, or that the person picks. Raises UsageError where nobody can pick."""
    if given:
        return known(contexts, given)
    if not session.interactive:
        raise UsageError("a context is needed: give CONTEXT")
    from natsctl.cli.prompts.ask import prompt_name

    if not (names := contexts.names()):
        raise ContextNotFound("no contexts are defined", [])
    return prompt_name("Select a Context", names)
