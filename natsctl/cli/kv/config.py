"""`natsctl kv add` and `edit`: what a bucket keeps, and for how long."""

from __future__ import annotations

import typer

from natsctl.cli import output
from natsctl.cli.bucket_config import create_bucket, edit_bucket, live_bucket
from natsctl.cli.buckets import BucketName, TheBucket
from natsctl.cli.editing import Unset
from natsctl.cli.flags import Config, Given, apply, flagged
from natsctl.cli.kv.flags import FIELDS, KV_ADD, KV_EDIT
from natsctl.cli.options import Force, IfNotExists, Json, session_of
from natsctl.cli.render.text import safe
from natsctl.client.buckets import KV
from natsctl.client.kv import config as kv_config


@flagged(KV_ADD)
def add(
    ctx: typer.Context,
    given: Given,
    bucket: TheBucket,
    if_not_exists: IfNotExists = False,
    json: Json = False,
) -> None:
    """Create a key-value bucket; one that exists with this configuration is success too."""
    session = session_of(ctx)
    wanted = kv_config.new_bucket(bucket)
    apply(wanted, KV_ADD, given)
    kv_config.settle(wanted)

    create_bucket(session, KV, bucket, wanted, if_not_exists=if_not_exists, json=json)


@flagged(KV_EDIT)
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
    live = live_bucket(session, KV, bucket)
    _warn_of_promotion(live.raw["config"], given, json)

    edit_bucket(session, KV, live, KV_EDIT, given, unset_fields, FIELDS, kv_config.settle, force=force, json=json)


def _warn_of_promotion(config: Config, given: Given, json: bool) -> None:
    """Say what becomes of the values of a mirror that shall be one no more: they keep the subjects of their origin."""
    mirror, bucket = config.get("mirror") or {}, KV.bucket_of(config["name"])
    origin = KV.bucket_of(mirror.get("name", ""))
    if "--no-mirror" in given and origin not in ("", bucket) and not mirror.get("subject_transforms") and not json:
        output.note(
            f"warning: what was copied keeps the subjects of bucket {safe(origin)}, which this bucket cannot read"
        )
