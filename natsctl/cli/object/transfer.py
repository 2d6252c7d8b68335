"""`natsctl object put` and `get`: files into a bucket and out of it."""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.api.units import format_size, parse_size
from natsctl.cli import output
from natsctl.cli.buckets import TheBucket, suggesting
from natsctl.cli.consent import confirmed
from natsctl.cli.messaging.bodies import STDIN
from natsctl.cli.options import Force, Header, Json, Progress, session_of
from natsctl.cli.progress import progress as progressing
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.client.objects.bucket import Object, ObjectBucket
    from natsctl.client.objects.put import Meta

STDOUT = "-"
SMALL_BYTES = 256 * 1024
"""Transfers below this are over before a bar is drawn."""

ObjectName = Annotated[str, typer.Argument(metavar="OBJECT", help="the object", show_default=False)]


def put(
    ctx: typer.Context,
    bucket: TheBucket,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="the file; - or none for stdin", show_default=False)
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="name of the object [the file's name]")] = "",
    description: Annotated[str, typer.Option("--description", metavar="TEXT", help="a description")] = "",
    header: Header = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", metavar="KEY=VALUE", help="attach a key and value", show_default=False),
    ] = None,
    chunk_size: Annotated[
        str, typer.Option("--chunk-size", metavar="SIZE", help="size of the chunks that it is stored in")
    ] = "128KiB",
    progress: Progress = True,
    force: Force = False,
    json: Json = False,
) -> None:
    """Store a file as an object, in place of the one of that name.

    Whatever interrupts it leaves the bucket as it was.
    """
    from natsctl.client.objects.put import put as put_object

    file = STDIN if file is None else file
    meta = _meta(posixpath.normpath(name) if name else _name_of(file), description, header, metadata, chunk_size)
    session = session_of(ctx)
    with suggesting(session), _source(file) as (source, size):
        opened = open_bucket(session, bucket)
        if not _may_replace(session, opened, meta.name, force, json):
            return
        quiet = json or session.dry_run or (size is not None and size < SMALL_BYTES)
        with progressing(f"Putting {meta.name}", size, bar=progress, quiet=quiet) as tracker:
            made = session.run(lambda _: put_object(opened, meta, source, tracker.at))
    _show(made, json, f"Put {bucket} > {meta.name}")


def _name_of(file: str) -> str:
    if file == STDIN:
        raise UsageError("an object from stdin has no name: give --name")
    return posixpath.normpath(Path(file).as_posix())


def _meta(name: str, description: str, header: list[str] | None, metadata: list[str] | None, chunk_size: str) -> Meta:
    from natsctl.cli.flags import PAIRS
    from natsctl.client.objects.put import Meta

    headers: dict[str, list[str]] = {}
    for word in header or ():
        key, colon, value = word.partition(":")
        if not colon or not key.strip():
            raise UsageError(f"--header: expected KEY:VALUE, not {word!r}")
        headers.setdefault(key.strip(), []).append(value.strip())
    try:
        pairs = dict(PAIRS.read(word) for word in metadata or ())
    except ValueError as failure:
        raise UsageError(f"--metadata: {failure}") from failure
    try:
        chunk_bytes = parse_size(chunk_size)
    except ValueError as failure:
        raise UsageError(f"--chunk-size: {failure}") from failure
    return Meta(name, description, headers, pairs, chunk_bytes)


@contextmanager
def _source(file: str) -> Iterator[tuple[IO[bytes], int | None]]:
    """The bytes of a file or of stdin, and how many there are where that is known. Raises UsageError."""
    if file == STDIN:
        yield sys.stdin.buffer, None
        return
    path = Path(file)
    try:
        with path.open("rb") as opened:
            yield opened, path.stat().st_size if path.is_file() else None
    except OSError as failure:
        if failure.filename is None:
            raise
        raise UsageError(f"{file}: {failure.strerror or failure}") from failure


def _may_replace(session: Session, bucket: ObjectBucket, name: str, force: bool, json: bool) -> bool:
    """Whether an object of that name may go: there is none, or the person says so."""
    if force or session.dry_run:
        return True
    there = session.run(lambda _: bucket.find(name, fresh=True))
    if there is None or there.deleted:
        return True
    question = f"replace object {bucket.name} > {name} of {format_size(there.size)}"
    return confirmed(session, question, force)


def get(
    ctx: typer.Context,
    bucket: TheBucket,
    name: ObjectName,
    target: Annotated[
        str | None,
        typer.Option("--output", "-O", metavar="FILE", help="the file to write, - for stdout", show_default=False),
    ] = None,
    progress: Progress = True,
    force: Force = False,
    json: Json = False,
) -> None:
    """Fetch an object into a file, whose name is the last part of the object's.

    It is written under another name and takes its own when size and digest are right. Links are followed.
    """
    session = session_of(ctx)
    if json and target == STDOUT:
        raise UsageError("--json and --output - exclude each other")
    with suggesting(session):
        opened = open_bucket(session, bucket)
        holder, found = session.run(lambda _: opened.resolve(name))
        if target == STDOUT:
            sys.stdout.flush()
            _fetch(session, holder, found, sys.stdout.buffer, bar=progress, quiet=True)
            sys.stdout.buffer.flush()
            return
        path = _target(target, name)
        if not _may_overwrite(session, path, force, json):
            return
        _into_file(session, holder, found, path, bar=progress, json=json)
    if json:
        output.emit_json({**found.document, "output": str(path)})
    else:
        output.note(safe(f"Wrote {format_size(found.size)} of {holder.name} > {found.name} to {path}"))


def _target(target: str | None, name: str) -> Path:
    """Where an object goes; its own name never leads out of this folder."""
    if target:
        return Path(target) / _base(name) if Path(target).is_dir() else Path(target)
    return Path(_base(name))


def _base(name: str) -> str:
    base = posixpath.basename(name.rstrip("/"))
    if base in ("", ".", "..") or "\0" in base:
        raise UsageError(f"{name!r} is not a valid file name: give --output FILE")
    return base


def _may_overwrite(session: Session, path: Path, force: bool, json: bool) -> bool:
    if force or not path.exists():
        return True
    return confirmed(session, f"replace the file {path}", force)


def _into_file(session: Session, bucket: ObjectBucket, found: Object, path: Path, *, bar: bool, json: bool) -> None:
    from natsctl.client.objects.get import beside

    if session.dry_run:
        from natsctl.client.preview import Previewed

        raise Previewed(effect={"writes_file": str(path), "bytes": found.size})
    with beside(path) as file:
        _fetch(session, bucket, found, file, bar=bar, quiet=json or found.size < SMALL_BYTES)


def _fetch(session: Session, bucket: ObjectBucket, found: Object, file: IO[bytes], *, bar: bool, quiet: bool) -> None:
    from natsctl.client.objects.get import get as get_object

    with progressing(f"Getting {found.name}", found.size, bar=bar, quiet=quiet) as tracker:
        session.run(lambda _: get_object(bucket, found, file, tracker.at))


def open_bucket(session: Session, bucket: str) -> ObjectBucket:
    """The bucket of that name."""
    from natsctl.client.objects.bucket import ObjectBucket

    return session.run(lambda manager: ObjectBucket.open(manager, bucket))


def _show(found: Object, json: bool, done: str) -> None:
    if json:
        output.emit_json(found.document)
        return
    output.note(safe(done))
    show_object(found)


def show_object(found: Object) -> None:
    """Print an object's page."""
    from natsctl.cli.render.buckets import render_object
    from natsctl.cli.screen import show_page

    show_page(render_object(found))
