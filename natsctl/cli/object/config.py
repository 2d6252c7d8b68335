"""`natsctl object add` and `edit`: what a bucket keeps, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from natsctl.cli import output
from natsctl.cli.bucket_config import create_bucket, edit_bucket, told
from natsctl.cli.buckets import BucketName, TheBucket, pick_bucket, suggesting
from natsctl.cli.editing import Unset
from natsctl.cli.flags import Given, apply, flagged
from natsctl.cli.object.flags import FIELDS, OBJECT_ADD, OBJECT_EDIT
from natsctl.cli.options import Force, IfNotExists, Json, session_of
from natsctl.client.buckets import OBJECTS, bucket_info
from natsctl.client.objects_config import new_bucket

if TYPE_CHECKING:
    from natsctl.client.answer import Answer


@flagged(OBJECT_ADD)
def add(
    ctx: typer.Context,
    given: Given,
    bucket: TheBucket,
    if_not_exists: IfNotExists = False,
    json: Json = False,
) -> None:
    """Create an object bucket; one that exists with this configuration is success too."""
    wanted = new_bucket(bucket)
    apply(wanted, OBJECT_ADD, given)

    def show(answer: Answer[Any], done: str) -> None:
        show_bucket(answer, json, done)

    create_bucket(session_of(ctx), OBJECTS, bucket, wanted, show, if_not_exists=if_not_exists, json=json)


@flagged(OBJECT_EDIT)
def edit(
    ctx: typer.Context,
    given: Given,
    bucket: BucketName = None,
    unset_fields: Unset = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Change what the flags say about a bucket, and nothing else."""
    session = session_of(ctx)
    name = pick_bucket(session, OBJECTS, bucket)
    with suggesting(session):
        live = session.run(lambda manager: bucket_info(manager, OBJECTS, name))

    def show(answer: Answer[Any], done: str) -> None:
        show_bucket(answer, json, done)

    edit_bucket(
        session, live, OBJECT_EDIT, given, unset_fields, FIELDS, lambda config: None, show, force=force, json=json
    )


def show_bucket(answer: Answer[Any], json: bool, done: str = "") -> None:
    """Show the bucket that an answer describes, after telling what was done."""
    if json:
        from natsctl.cli.object.shapes import bucket_document

        output.emit_json(bucket_document(answer))
        return
    if done:
        told(done)
    from natsctl.cli.render.object import render_bucket
    from natsctl.cli.screen import show_page

    show_page(render_bucket(answer.value))
