"""Buckets of both kinds shown, listed and removed: the same steps, with the document, page and table of each kind."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from natsctl.cli import output
from natsctl.cli.buckets import suggesting
from natsctl.cli.consent import confirmed
from natsctl.cli.paging import emit_name_pages
from natsctl.cli.render.text import safe
from natsctl.client.buckets import BucketNotFound, Kind, bucket_infos, bucket_name_pages, bucket_names

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.client.answer import Answer

T = TypeVar("T")


def _document(kind: Kind, answer: Answer[Any]) -> dict[str, Any]:
    document: dict[str, Any] = importlib.import_module(f"natsctl.cli.{kind.word}.shapes").bucket_document(answer)
    return document


def show_bucket(kind: Kind, answer: Answer[Any], json: bool, done: str = "") -> None:
    """Show the bucket that an answer describes, after telling what was done."""
    if json:
        output.emit_json(_document(kind, answer))
        return
    if done:
        output.note(safe(done))
    from natsctl.cli.render.buckets import render_bucket
    from natsctl.cli.screen import show_page

    show_page(render_bucket(kind, answer.value))


def list_buckets(session: Session, kind: Kind, *, names: bool, json: bool) -> None:
    """Show which buckets there are."""
    if names and json:
        output.emit_json(session.run(lambda manager: bucket_names(manager, kind)))
        return
    if names:
        emit_name_pages(session, lambda manager: bucket_name_pages(manager, kind))
        return
    infos, absent = session.run(lambda manager: bucket_infos(manager, kind))
    if json:
        output.emit_json([_document(kind, one) for one in infos])
    elif infos:
        from natsctl.cli.render.buckets import render_buckets
        from natsctl.cli.screen import show_table

        show_table(render_buckets(kind, [one.value for one in infos], time.time_ns()))
    else:
        output.emit(f"No {kind.noun}s defined")
    if absent:
        output.note(f"warning: inaccessible buckets: {', '.join(safe(name) for name in absent)}")


def remove_bucket(session: Session, kind: Kind, bucket: str, held: str, *, force: bool, json: bool) -> None:
    """Remove a bucket with what it held, unless the person who is asked does not want that."""
    if not confirmed(session, f"delete Bucket {bucket} with {held}", force, typed=bucket):
        return
    with suggesting(session):
        answer = session.run(lambda manager: manager.stream_delete(kind.stream_of(bucket)))
    if json:
        output.emit_json({"bucket": bucket, **answer.raw})
    else:
        output.note(f"Bucket {safe(bucket)} was removed, with {held}")


def open_if_there(
    session: Session,
    opening: Callable[[Session, str], T],
    bucket: str,
    missing_ok: bool,
    json: bool,
    **held: str | None,
) -> T | None:
    """The opened bucket; None, which is told, where there is none and that is well. Raises BucketNotFound."""
    try:
        return opening(session, bucket)
    except BucketNotFound:
        if not missing_ok:
            raise
        tell_missing(bucket, json, **held)
        return None


def tell_missing(bucket: str, json: bool, **held: str | None) -> None:
    """Tell that a bucket, or what it should hold (`key=…`, `name=…`), is not there, and that this is well."""
    there = {field: name for field, name in held.items() if name}
    if json:
        output.emit_json({"bucket": bucket, **there, "success": True, "missing": True})
    else:
        named = " > ".join((bucket, *there.values())) if there else f"Bucket {bucket}"
        output.note(safe(f"{named} does not exist"))
