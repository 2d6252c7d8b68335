"""`natsctl kv put`, `create`, `update` and `revert`: what sets a key."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.errors import UsageError
from natsctl.api.units import parse_duration
from natsctl.cli import output
from natsctl.cli.buckets import TheBucket, suggesting
from natsctl.cli.consent import check_consent, confirmed
from natsctl.cli.globals import Dash
from natsctl.cli.messaging.bodies import read_body
from natsctl.cli.options import Force, Json, session_of
from natsctl.cli.render.text import duration, safe

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.client.answer import Answer
    from natsctl.client.kv.bucket import Bucket
    from natsctl.client.kv.entry import Entry

Key = Annotated[str, typer.Argument(metavar="KEY", help="the key", show_default=False)]
Value = Annotated[
    str | None, typer.Argument(metavar="VALUE", help="the value; without it, stdin is read", show_default=False)
]
Ttl = Annotated[str | None, typer.Option("--ttl", metavar="DURATION", help="remove the key after this time")]


def put(ctx: typer.Context, bucket: TheBucket, key: Key, value: Value = None, json: Json = False) -> None:
    """Set a key."""
    body = _body(value)
    _write(session_of(ctx), bucket, key, json, lambda opened: opened.put(key, body), value)


def create(
    ctx: typer.Context, bucket: TheBucket, key: Key, value: Value = None, ttl: Ttl = None, json: Json = False
) -> None:
    """Set a key that does not exist, or was deleted."""
    body, ttl_ns = _body(value), ttl_of(ttl)
    opened = _write(session_of(ctx), bucket, key, json, lambda opened: opened.create(key, body, ttl_ns), value)
    if ttl_ns and not json and opened.shortest_ttl_ns > ttl_ns:
        output.note(f"warning: it lives {duration(opened.shortest_ttl_ns)}, as long as the bucket keeps markers")


def update(
    ctx: typer.Context,
    bucket: TheBucket,
    key: Key,
    value: Value = None,
    revision: Annotated[
        int | None,
        typer.Argument(metavar="REVISION", help="the revision that the key must be at", min=0, show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Set a key if it is at a given revision; otherwise nothing changes, and the exit code is 4."""
    if revision is None:
        raise UsageError("a revision is needed: give REVISION", hint="natsctl kv get -j shows which one the key is at")
    body = _body(value)
    _write(session_of(ctx), bucket, key, json, lambda opened: opened.update(key, body, revision), value)


def revert(
    ctx: typer.Context,
    bucket: TheBucket,
    key: Key,
    revision: Annotated[
        int, typer.Argument(metavar="REVISION", help="the revision to go back to", min=1, show_default=False)
    ],
    force: Force = False,
    json: Json = False,
) -> None:
    """Set a key to its value at an earlier revision, unless it is changed meanwhile."""
    session = session_of(ctx)
    question = f"revert {bucket} > {key} to revision {revision}"
    check_consent(session, question, force)

    async def look(opened: Bucket) -> tuple[Entry, Entry | None]:
        return await opened.get(key, revision), await opened.last(key, fresh=True)

    with suggesting(session):
        opened = open_bucket(session, bucket)
        old, now = session.run(lambda _: look(opened))
    latest = now.revision if now is not None else 0
    if latest == revision:
        raise UsageError(f"key {key} is at revision {revision} already")
    if not force and not json:
        from natsctl.cli.render.buckets import render_revert

        output.note(render_revert(old, now))
    if not confirmed(session, question, force):
        return
    _write(session, bucket, key, json, lambda _: opened.update(key, old.value or b"", latest), quiet=False)


def open_bucket(session: Session, bucket: str) -> Bucket:
    """The bucket of that name."""
    from natsctl.client.kv.bucket import Bucket

    return session.run(lambda manager: Bucket.open(manager, bucket))


def ttl_of(text: str | None) -> int:
    """The nanoseconds of `--ttl`, 0 for none. Raises UsageError."""
    if text is None:
        return 0
    try:
        ns = parse_duration(text)
    except ValueError as failure:
        raise UsageError(f"--ttl: {failure}") from failure
    if ns <= 0:
        raise UsageError("--ttl: a key lives 1s at least")
    return ns


def _body(value: str | None) -> bytes:
    """Return the value that was given, or what is on stdin where there is none, or `-`; a terminal is not read."""
    given = "" if value is None or isinstance(value, Dash) else value
    if given or sys.stdin is None or sys.stdin.isatty():
        return read_body(given)
    return sys.stdin.buffer.read()


def _write(
    session: Session,
    bucket: str,
    key: str,
    json: bool,
    write: Callable[[Bucket], Awaitable[Answer[Any]]],
    value: str | None = None,
    *,
    quiet: bool = True,
) -> Bucket:
    """Carry out a write, repeat the `value` that was given, and return the bucket.

    The revision that was made is told at a terminal, and elsewhere unless `quiet`.
    """
    with suggesting(session):
        opened = open_bucket(session, bucket)
        answer = session.run(lambda _: write(opened))
    if json:
        from natsctl.cli.kv.shapes import written_document

        output.emit_json(written_document(bucket, key, "PUT", answer.raw))
        return opened
    if value is not None:
        output.emit_bytes(value.encode("utf-8", "surrogateescape") + b"\n")
    if not quiet or sys.stderr.isatty():
        output.note(safe(f"{bucket} > {key} is at revision {answer.value.seq}"))
    return opened
