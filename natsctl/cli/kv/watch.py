"""`natsctl kv watch`: what happens to keys, as it happens."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.buckets import BucketName, pick_bucket, suggesting
from natsctl.cli.kv.write import open_bucket
from natsctl.cli.options import Json, session_of
from natsctl.cli.waiting import wait_seconds
from natsctl.client.buckets import KV

if TYPE_CHECKING:
    from natsctl.client.kv.bucket import Bucket
    from natsctl.client.kv.entry import Entry
    from natsctl.client.kv.watch import Watching

Count = Annotated[
    int, typer.Option("--count", metavar="N", help="end after N of them, 0 for never", min=0, show_default=False)
]
Wait = Annotated[str | None, typer.Option("--wait", metavar="DURATION", help="end after this long without changes")]


def watch(
    ctx: typer.Context,
    bucket: BucketName = None,
    keys: Annotated[
        str, typer.Argument(metavar="FILTER", help="only these keys, such as db.* or db.>", show_default=False)
    ] = ">",
    history: Annotated[bool, typer.Option("--history", help="start with all kept values", show_default=False)] = False,
    deletes: Annotated[bool, typer.Option("--deletes/--no-deletes", help="also show deletions")] = True,
    updates: Annotated[bool, typer.Option("--updates", help="only new changes", show_default=False)] = False,
    revision: Annotated[
        int, typer.Option("--revision", metavar="N", help="start at this revision", min=0, show_default=False)
    ] = 0,
    count: Count = 0,
    wait: Wait = None,
    json: Json = False,
) -> None:
    """Show the keys of a bucket and their changes, until Ctrl-C, --count or --wait.

    Ends with 7 if nothing happened within the wait.
    """
    if (history or revision) and updates:
        raise UsageError("--updates excludes --history and --revision")
    from natsctl.client.kv.watch import Watching

    watching = Watching(keys, history, updates, revision, deletes, count, wait_seconds(wait))
    session = session_of(ctx)
    name = pick_bucket(session, KV, bucket)
    with suggesting(session):
        opened = open_bucket(session, name)
        session.run(lambda _: _show_all(opened, watching, json))


async def _show_all(bucket: Bucket, watching: Watching, json: bool) -> None:
    from natsctl.client.kv.watch import watch as watch_entries

    async for entry in watch_entries(bucket, watching):
        _show(entry, json)


def _show(entry: Entry, json: bool) -> None:
    if json:
        from natsctl.cli.kv.shapes import entry_document

        output.emit_json_line(entry_document(entry))
        return
    from natsctl.cli.render.buckets import render_kv_event
    from natsctl.cli.screen import width

    output.emit(render_kv_event(entry, width(), coloured=output.has_color(sys.stdout)))
    sys.stdout.flush()
