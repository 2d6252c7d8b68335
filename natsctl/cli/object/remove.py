"""`natsctl object del` and `seal`: what takes objects or whole buckets away, or makes a bucket last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.units import format_size, plural
from natsctl.cli import output
from natsctl.cli.bucket_shown import open_if_there, remove_bucket, show_bucket, tell_missing
from natsctl.cli.buckets import TheBucket, check_key_or_all, suggesting
from natsctl.cli.consent import check_consent, confirmed
from natsctl.cli.object.ls import OptionalObject
from natsctl.cli.object.transfer import open_bucket
from natsctl.cli.options import Force, Json, MissingOk, session_of
from natsctl.cli.render.text import safe
from natsctl.client.buckets import OBJECTS

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.client.objects.bucket import Object, ObjectBucket


def rm(
    ctx: typer.Context,
    bucket: TheBucket,
    name: OptionalObject = None,
    whole: Annotated[
        bool, typer.Option("--all", help="delete the bucket with every object, in place of OBJECT", show_default=False)
    ] = False,
    force: Force = False,
    missing_ok: MissingOk = False,
    json: Json = False,
) -> None:
    """Delete an object, or with --all the bucket itself with every object."""
    check_key_or_all("OBJECT", name, whole, "delete the whole bucket")
    session = session_of(ctx)
    check_consent(session, f"delete {f'object {bucket} > {name}' if name else f'Bucket {bucket}'}", force)
    with suggesting(session):
        opened = open_if_there(session, open_bucket, bucket, missing_ok, json, name=name)
        if opened is None:
            return
        if name is None:
            _remove_bucket(session, opened, force, json)
        else:
            _remove_object(session, opened, name, force=force, missing_ok=missing_ok, json=json)


def _remove_bucket(session: Session, bucket: ObjectBucket, force: bool, json: bool) -> None:
    from natsctl.client.objects.watch import objects

    size = bucket.info.value.state.bytes
    held = format_size(size)
    session.effect["bytes"] = size
    if not force or session.dry_run:  # counting reads them, so where nobody looks it is left out
        there = session.effect["objects"] = len(session.run(lambda _: objects(bucket)))
        held = f"{plural(there, 'object')} ({held})"
    remove_bucket(session, OBJECTS, bucket.name, held, force=force, json=json)


def _remove_object(
    session: Session, bucket: ObjectBucket, name: str, *, force: bool, missing_ok: bool, json: bool
) -> None:
    found = _present(session, bucket, name, missing_ok, json)
    if found is None:
        return
    session.effect |= {"bytes": found.size, "chunks": found.chunks}
    question = f"delete object {bucket.name} > {name} of {format_size(found.size)}"
    if not confirmed(session, question, force):
        return
    purged = session.run(lambda _: bucket.delete(found))
    if json:
        output.emit_json({"bucket": bucket.name, "name": name, "success": True, "purged": purged})
    else:
        output.note(safe(f"Removed {bucket.name} > {name}, {format_size(found.size)}"))


def _present(session: Session, bucket: ObjectBucket, name: str, missing_ok: bool, json: bool) -> Object | None:
    """The object; None where there is none and that is well. Raises ObjectNotFound."""
    from natsctl.client.objects.bucket import ObjectNotFound

    try:
        return session.run(lambda _: bucket.info_of(name, fresh=True))
    except ObjectNotFound:
        if not missing_ok:
            raise
        tell_missing(bucket.name, json, name=name)
        return None


def seal(ctx: typer.Context, bucket: TheBucket, force: Force = False, json: Json = False) -> None:
    """Seal a bucket permanently: it can only be read."""
    session = session_of(ctx)
    check_consent(session, f"seal Bucket {bucket}", force)
    with suggesting(session):
        opened = open_bucket(session, bucket)
        if opened.info.value.config.sealed:
            show_bucket(OBJECTS, opened.info, json, f"Bucket {bucket} is sealed already")
            return
        question = f"seal Bucket {bucket}, which cannot be undone; it cannot be changed afterwards"
        if not confirmed(session, question, force, typed=bucket):
            return
        wanted: dict[str, Any] = {**opened.info.raw["config"], "sealed": True}
        answer = session.run(lambda manager: manager.stream_update(wanted))
    show_bucket(OBJECTS, answer, json, f"Bucket {bucket} was sealed")
