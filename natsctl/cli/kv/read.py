"""`natsctl kv get` and `history`: what a key holds, and held."""

from __future__ import annotations

from typing import Annotated

import typer

from natsctl.cli import output
from natsctl.cli.buckets import TheBucket, suggesting
from natsctl.cli.kv.write import Key, open_bucket
from natsctl.cli.options import Json, Raw, session_of


def get(
    ctx: typer.Context,
    bucket: TheBucket,
    key: Key,
    revision: Annotated[
        int | None,
        typer.Option("--revision", metavar="N", help="the value at this revision", min=1, show_default=False),
    ] = None,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Show the value of a key; --raw writes the value alone."""
    session = session_of(ctx)
    with suggesting(session):
        opened = open_bucket(session, bucket)
        entry = session.run(lambda _: opened.get(key, revision or 0))
    if json:
        from natsctl.cli.kv.shapes import entry_document

        output.emit_json(entry_document(entry))
    elif raw:
        output.emit_bytes(entry.value or b"")
    else:
        from natsctl.cli.messaging.bodies import show_message
        from natsctl.cli.render.buckets import render_heading

        show_message(render_heading(entry), [], entry.value or b"")
        output.emit("")


def history(
    ctx: typer.Context,
    bucket: TheBucket,
    key: Annotated[str, typer.Argument(metavar="KEY", help="the key, or a filter such as db.*", show_default=False)],
    json: Json = False,
) -> None:
    """Show the history of a key, including deletions."""
    from natsctl.client.kv.bucket import KeyNotFound
    from natsctl.client.kv.watch import entries

    session = session_of(ctx)
    with suggesting(session):
        opened = open_bucket(session, bucket)
        found = session.run(lambda _: entries(opened, key, history=True, deletes=True))
        if not found:
            raise KeyNotFound(opened, key, f"key {key} does not exist in bucket {bucket}")
    if json:
        from natsctl.cli.kv.shapes import entry_document

        output.emit_json([entry_document(entry) for entry in found])
        return
    from natsctl.cli.render.buckets import render_history
    from natsctl.cli.screen import show_table

    show_table(render_history(bucket, key, found))
