"""`natsctl object add` and `edit`: what a bucket keeps, and for how long."""

from __future__ import annotations

import typer

from natsctl.cli.bucket_config import create_bucket, edit_bucket, live_bucket
from natsctl.cli.buckets import BucketName, TheBucket
from natsctl.cli.editing import Unset
from natsctl.cli.flags import Given, apply, flagged
from natsctl.cli.object.flags import FIELDS, OBJECT_ADD, OBJECT_EDIT
from natsctl.cli.options import Force, IfNotExists, Json, session_of
from natsctl.client.buckets import OBJECTS
from natsctl.client.objects.config import new_bucket


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

    create_bucket(session_of(ctx), OBJECTS, bucket, wanted, if_not_exists=if_not_exists, json=json)


@flagged(OBJECT_EDIT)
def edit(
    ctx: typer.Context,
    given: Given,
    bucket: BucketName = None,
    unset_fields: Unset = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Change a bucket as the flags say, and nothing else."""
    session = session_of(ctx)
    live = live_bucket(session, OBJECTS, bucket)
    edit_bucket(
        session, OBJECTS, live, OBJECT_EDIT, given, unset_fields, FIELDS, lambda config: None, force=force, json=json
    )
