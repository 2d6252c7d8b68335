"""`natsctl object ls` and `info`: which buckets there are, which objects, and what is known of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.cli import output
from natsctl.cli.bucket_shown import list_buckets, show_bucket
from natsctl.cli.buckets import BucketName, pick_bucket, suggesting
from natsctl.cli.object.transfer import open_bucket, show_object
from natsctl.cli.options import Json, Names, session_of
from natsctl.cli.render.text import safe
from natsctl.client.buckets import OBJECTS

if TYPE_CHECKING:
    from natsctl.cli.session import Session

OptionalObject = Annotated[str | None, typer.Argument(metavar="OBJECT", help="the object", show_default=False)]


def info(ctx: typer.Context, bucket: BucketName = None, name: OptionalObject = None, json: Json = False) -> None:
    """Show a bucket's configuration and state, or an object's metadata."""
    session = session_of(ctx)
    picked = pick_bucket(session, OBJECTS, bucket)
    with suggesting(session):
        opened = open_bucket(session, picked)
        if name is None:
            show_bucket(OBJECTS, opened.info, json)
            return
        found = session.run(lambda _: opened.info_of(name))
    if json:
        output.emit_json(found.document)
    else:
        show_object(found)


def ls(ctx: typer.Context, bucket: BucketName = None, names: Names = False, json: Json = False) -> None:
    """List the buckets, or the objects of one."""
    session = session_of(ctx)
    with suggesting(session):
        if bucket is None:
            list_buckets(session, OBJECTS, names=names, json=json)
        else:
            _list_objects(session, bucket, names=names, json=json)


def _list_objects(session: Session, bucket: str, *, names: bool, json: bool) -> None:
    from natsctl.client.objects.watch import objects

    opened = open_bucket(session, bucket)
    found = session.run(lambda _: objects(opened))
    if json:
        output.emit_json([one.name if names else one.document for one in found])
    elif names:
        output.emit_names(one.name for one in found)
    elif found:
        from natsctl.cli.render.buckets import render_objects
        from natsctl.cli.screen import show_table

        show_table(render_objects(bucket, found))
    else:
        output.note(f"No objects in bucket {safe(bucket)}")
