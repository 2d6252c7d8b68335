"""`natsctl object watch`: objects that are put and deleted, as it happens."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.cli import output
from natsctl.cli.buckets import BucketName, pick_bucket, suggesting
from natsctl.cli.kv.watch import Count, Wait
from natsctl.cli.object.transfer import open_bucket
from natsctl.cli.options import Json, session_of
from natsctl.cli.waiting import wait_seconds
from natsctl.client.buckets import OBJECTS

if TYPE_CHECKING:
    from natsctl.client.objects.bucket import Object, ObjectBucket
    from natsctl.client.objects.watch import Watching


def watch(
    ctx: typer.Context,
    bucket: BucketName = None,
    deletes: Annotated[bool, typer.Option("--deletes/--no-deletes", help="also show deletions")] = True,
    updates: Annotated[bool, typer.Option("--updates", help="only new changes", show_default=False)] = False,
    count: Count = 0,
    wait: Wait = None,
    json: Json = False,
) -> None:
    """Show the objects of a bucket and their changes, until Ctrl-C, --count or --wait.

    Ends with 7 if nothing happened within the wait.
    """
    from natsctl.client.objects.watch import Watching

    watching = Watching(updates, deletes, count, wait_seconds(wait))
    session = session_of(ctx)
    name = pick_bucket(session, OBJECTS, bucket)
    with suggesting(session):
        opened = open_bucket(session, name)
        session.run(lambda _: _show_all(opened, watching, json))


async def _show_all(bucket: ObjectBucket, watching: Watching, json: bool) -> None:
    from natsctl.client.objects.watch import watch as watch_objects

    async for found in watch_objects(bucket, watching):
        _show(found, json)


def _show(found: Object, json: bool) -> None:
    if json:
        output.emit_json_line(found.document)
        return
    from natsctl.cli.render.buckets import render_object_event
    from natsctl.cli.screen import width

    output.emit(render_object_event(found, width(), coloured=output.has_color(sys.stdout)))
    sys.stdout.flush()
