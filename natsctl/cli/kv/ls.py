"""`natsctl kv ls` and `info`: which buckets there are, which keys, and how a bucket is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.bucket_config import live_bucket
from natsctl.cli.bucket_shown import list_buckets, show_bucket
from natsctl.cli.buckets import BucketName, suggesting
from natsctl.cli.kv.write import open_bucket
from natsctl.cli.options import Json, Names, session_of
from natsctl.cli.render.text import safe
from natsctl.client.buckets import KV

if TYPE_CHECKING:
    from natsctl.cli.session import Session


def info(ctx: typer.Context, bucket: BucketName = None, json: Json = False) -> None:
    """Show a bucket's configuration and state."""
    show_bucket(KV, live_bucket(session_of(ctx), KV, bucket), json)


def ls(
    ctx: typer.Context,
    bucket: BucketName = None,
    keys: Annotated[
        str | None, typer.Argument(metavar="FILTER", help="only these keys, such as db.* or db.>", show_default=False)
    ] = None,
    names: Names = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="a table of the keys", show_default=False)] = False,
    values: Annotated[bool, typer.Option("--display-value", help="include values", show_default=False)] = False,
    json: Json = False,
) -> None:
    """List the buckets, or the keys of one.

    With -j keys are whole entries, whose values are there with --display-value; with -n they are names.
    """
    session = session_of(ctx)
    with suggesting(session):
        if bucket is None:
            list_buckets(session, KV, names=names, json=json)
        else:
            _list_keys(session, bucket, keys or ">", names=names, table=verbose or values, values=values, json=json)


def _list_keys(
    session: Session, bucket: str, pattern: str, *, names: bool, table: bool, values: bool, json: bool
) -> None:
    from natsctl.client.kv.watch import entries
    from natsctl.client.kv.watch import keys as keys_of

    if names and table:
        raise UsageError("--names and --verbose exclude each other")
    opened = open_bucket(session, bucket)
    if names or not (table or json):
        found = session.run(lambda _: keys_of(opened, pattern))
        output.emit_json(found) if json else output.emit_names(found)
        if not found and not names:
            _tell_none(bucket, pattern)
        return
    whole = session.run(lambda _: entries(opened, pattern, values=values))
    whole.sort(key=lambda entry: entry.key)
    if json:
        from natsctl.cli.kv.shapes import entry_document

        output.emit_json([entry_document(entry) for entry in whole])
    elif whole:
        from natsctl.cli.render.buckets import render_keys
        from natsctl.cli.screen import show_table

        show_table(render_keys(bucket, whole, values=values))
    else:
        _tell_none(bucket, pattern)


def _tell_none(bucket: str, pattern: str) -> None:
    output.note(f"No keys in bucket {safe(bucket)}" + (f" match {safe(pattern)}" if pattern != ">" else ""))
