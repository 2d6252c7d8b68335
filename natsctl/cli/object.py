"""Object buckets and objects: `natsctl object`."""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import IO, Annotated, Any

from msgspec import UNSET, UnsetType, field

from natsctl.api.errors import UsageError
from natsctl.api.model import Model
from natsctl.api.units import format_size, parse_size, plural
from natsctl.cli.answer_documents import AnyBucket, either, shared_fields
from natsctl.cli.buckets import (
    BUCKET_SIZE,
    COMPRESS,
    DESCRIPTION,
    PLACEMENT,
    REPLICAS,
    BucketName,
    TheBucket,
    check_key_or_all,
    create_bucket,
    edit_bucket,
    list_buckets,
    live_bucket,
    open_if_there,
    pick_bucket,
    remove_bucket,
    report_missing,
    show_bucket,
    show_changes,
    storage_flag,
    suggesting_in_bucket,
)
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import check_consent, confirmed
from natsctl.cli.framework.flags import (
    DURATION,
    METADATA,
    PAIRS,
    Flag,
    Force,
    Given,
    Header,
    IfNotExists,
    Json,
    MissingOk,
    Names,
    Progress,
    Unset,
    apply,
    flagged,
    without_defaults,
)
from natsctl.cli.framework.live import progress as progressing
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.kv import Count, Wait
from natsctl.cli.messaging.bodies import STDIN
from natsctl.cli.render.text import safe
from natsctl.client.asset_config import new_object_bucket, set_ttl
from natsctl.client.buckets import OBJECTS, WatchOptions
from natsctl.client.message import DryRunError
from natsctl.client.object_store import Meta, ObjectBucket, ObjectNotFoundError, StoredObject, beside, objects
from natsctl.client.object_store import get as get_object
from natsctl.client.object_store import put as put_object
from natsctl.client.object_store import watch as watch_objects
from natsctl.client.requests import Answer

OBJECT_FLAGS: tuple[Flag, ...] = (
    DESCRIPTION,
    Flag("--ttl", DURATION, set_ttl, "how long objects are kept, 0 for no limit", default="0"),
    REPLICAS,
    BUCKET_SIZE,
    storage_flag("objects"),
    *PLACEMENT,
    *METADATA,
    COMPRESS,
)

OBJECT_ADD = tuple(flag for flag in OBJECT_FLAGS if flag.add)
OBJECT_EDIT = without_defaults([flag for flag in OBJECT_FLAGS if flag.edit])

FIELDS = {"ttl": "max_age", "compress": "compression", "tags": "placement.tags", "cluster": "placement.cluster"}
"""A bucket's names for fields of its stream, for --unset."""


@flagged(OBJECT_ADD)
def add(
    session: Session,
    given: Given,
    bucket: TheBucket,
    if_not_exists: IfNotExists = False,
    json: Json = False,
) -> None:
    """Create an object bucket; succeeds too if it exists with this configuration."""
    wanted = new_object_bucket(bucket)
    apply(wanted, OBJECT_ADD, given)

    create_bucket(session, OBJECTS, bucket, wanted, if_not_exists=if_not_exists, json=json)


@flagged(OBJECT_EDIT)
def edit(
    session: Session,
    given: Given,
    bucket: BucketName = None,
    unset_fields: Unset = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Change a bucket as the flags say, and nothing else."""
    live = live_bucket(session, OBJECTS, bucket)
    edit_bucket(
        session, OBJECTS, live, OBJECT_EDIT, given, unset_fields, FIELDS, lambda config: None, force=force, json=json
    )


STDOUT = "-"
SMALL_BYTES = 256 * 1024
"""Size of transfers below which no bar is drawn."""


def put(
    session: Session,
    bucket: TheBucket,
    file: Annotated[str | None, Argument(metavar="FILE", help="the file; - or none for stdin")] = None,
    name: Annotated[str, Option("--name", metavar="NAME", help="name of the object [the file's name]")] = "",
    description: Annotated[str, Option("--description", metavar="TEXT", help="a description")] = "",
    header: Header = None,
    metadata: Annotated[
        list[tuple[str, str]] | None,
        Option("--metadata", metavar="KEY=VALUE", help="attach a key and value", read=PAIRS.read),
    ] = None,
    chunk_size: Annotated[
        int, Option("--chunk-size", metavar="SIZE", help="size of the chunks that it is stored in", read=parse_size)
    ] = 128 * 1024,
    progress: Progress = True,
    force: Force = False,
    json: Json = False,
) -> None:
    """Store a file as an object, replacing an existing object of that name.

    An interrupted put leaves the bucket unchanged.
    """
    file = STDIN if file is None else file
    meta = _meta(posixpath.normpath(name) if name else _name_of(file), description, header, metadata, chunk_size)
    with suggesting_in_bucket(session), _source(file) as (source, size):
        opened = open_bucket(session, bucket)
        if not _may_replace(session, opened, meta.name, force, json):
            return
        quiet = json or session.dry_run or (size is not None and size < SMALL_BYTES)
        with progressing(f"Putting {meta.name}", size, bar=progress, quiet=quiet) as tracker:
            made = session.run(lambda _: put_object(opened, meta, source, tracker.at))
    done = f"Put {bucket} > {meta.name}"
    if json:
        output.emit_json(made.document)
        return
    output.note(safe(done))
    show_object(made)


def _name_of(file: str) -> str:
    if file == STDIN:
        raise UsageError("an object from stdin has no name: give --name")
    return posixpath.normpath(Path(file).as_posix())


def _meta(
    name: str,
    description: str,
    header: list[str] | None,
    metadata: list[tuple[str, str]] | None,
    chunk_size: int,
) -> Meta:
    headers: dict[str, list[str]] = {}
    for word in header or ():
        key, colon, value = word.partition(":")
        if not colon or not key.strip():
            raise UsageError(f"--header: expected KEY:VALUE, not {word!r}")
        headers.setdefault(key.strip(), []).append(value.strip())
    return Meta(name, description, headers, dict(metadata or ()), chunk_size)


@contextmanager
def _source(file: str) -> Iterator[tuple[IO[bytes], int | None]]:
    """Return the chunks of a file or of stdin, and their total size if it is known. Raises UsageError."""
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
    """Return whether an object of that name may be replaced: it does not exist, or the user agrees."""
    if force or session.dry_run:
        return True
    there = session.run(lambda _: bucket.find(name, fresh=True, damaged=True))
    if there is None or there.deleted:
        return True
    question = f"replace object {bucket.name} > {name} of {format_size(there.size)}"
    return confirmed(session, question, force)


def get(
    session: Session,
    bucket: TheBucket,
    name: Annotated[str, Argument(metavar="OBJECT", help="name of the object")],
    target: Annotated[
        str | None,
        Option("--output", "-O", metavar="FILE", help="the file to write, - for stdout"),
    ] = None,
    progress: Progress = True,
    force: Force = False,
    json: Json = False,
) -> None:
    """Fetch an object into a file, named by the last part of the object's name.

    It is written under another name and takes its own when size and digest are right. Links are followed.
    """
    if json and target == STDOUT:
        raise UsageError("--json and --output - exclude each other")
    with suggesting_in_bucket(session):
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
    """Return the path for an object; its name never leads out of this folder."""
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


def _into_file(
    session: Session, bucket: ObjectBucket, found: StoredObject, path: Path, *, bar: bool, json: bool
) -> None:
    if session.dry_run:
        raise DryRunError(effect={"writes_file": str(path), "bytes": found.size})
    with beside(path) as file:
        _fetch(session, bucket, found, file, bar=bar, quiet=json or found.size < SMALL_BYTES)


def _fetch(
    session: Session, bucket: ObjectBucket, found: StoredObject, file: IO[bytes], *, bar: bool, quiet: bool
) -> None:
    with progressing(f"Getting {found.name}", found.size, bar=bar, quiet=quiet) as tracker:
        session.run(lambda _: get_object(bucket, found, file, tracker.at))


def open_bucket(session: Session, bucket: str) -> ObjectBucket:
    return session.run(lambda manager: ObjectBucket.open(manager, bucket))


def show_object(found: StoredObject) -> None:
    from natsctl.cli.render.bucket_pages import render_object

    output.show_page(render_object(found))


OptionalObject = Annotated[str | None, Argument(metavar="OBJECT", help="name of the object")]


def info(session: Session, bucket: BucketName = None, name: OptionalObject = None, json: Json = False) -> None:
    """Show a bucket's configuration and state, or an object's metadata."""
    picked = pick_bucket(session, OBJECTS, bucket)
    with suggesting_in_bucket(session):
        opened = open_bucket(session, picked)
        if name is None:
            show_bucket(OBJECTS, opened.info, json)
            return
        found = session.run(lambda _: opened.info_of(name))
    output.emit_json(found.document) if json else show_object(found)


def ls(session: Session, bucket: BucketName = None, names: Names = False, json: Json = False) -> None:
    """List the buckets, or the objects of one."""
    with suggesting_in_bucket(session):
        if bucket is None:
            list_buckets(session, OBJECTS, names=names, json=json)
        else:
            _list_objects(session, bucket, names=names, json=json)


def _list_objects(session: Session, bucket: str, *, names: bool, json: bool) -> None:
    opened = open_bucket(session, bucket)
    found = session.run(lambda _: objects(opened))
    if json:
        output.emit_json([one.name if names else one.document for one in found])
    elif names:
        output.emit_names(one.name for one in found)
    elif found:
        from natsctl.cli.render.bucket_pages import render_objects

        output.show_table(render_objects(bucket, found))
    else:
        output.note(f"No objects in bucket {safe(bucket)}")


def rm(
    session: Session,
    bucket: TheBucket,
    name: OptionalObject = None,
    whole: Annotated[bool, Option("--all", help="delete the bucket with every object, instead of OBJECT")] = False,
    force: Force = False,
    missing_ok: MissingOk = False,
    json: Json = False,
) -> None:
    """Delete an object, or with --all the bucket itself with every object."""
    check_key_or_all("OBJECT", name, whole, "delete the whole bucket")
    check_consent(session, f"delete {f'object {bucket} > {name}' if name else f'Bucket {bucket}'}", force)
    with suggesting_in_bucket(session):
        opened = open_if_there(session, open_bucket, bucket, missing_ok, json, name=name)
        if opened is None:
            return
        if name is None:
            _remove_bucket(session, opened, force, json)
        else:
            _remove_object(session, opened, name, force=force, missing_ok=missing_ok, json=json)


def _remove_bucket(session: Session, bucket: ObjectBucket, force: bool, json: bool) -> None:
    size = bucket.info.value.state.bytes
    held = format_size(size)
    session.effect["bytes"] = size
    if not force or session.dry_run:  # counting reads all objects, so it is left out where the number is not shown
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


def _present(session: Session, bucket: ObjectBucket, name: str, missing_ok: bool, json: bool) -> StoredObject | None:
    try:
        return session.run(lambda _: bucket.info_of(name, fresh=True, damaged=True))
    except ObjectNotFoundError:
        if not missing_ok:
            raise
        report_missing(bucket.name, json, name=name)
        return None


def seal(session: Session, bucket: TheBucket, force: Force = False, json: Json = False) -> None:
    """Seal a bucket permanently: it can only be read."""
    check_consent(session, f"seal Bucket {bucket}", force)
    with suggesting_in_bucket(session):
        opened = open_bucket(session, bucket)
        if opened.info.value.config.sealed:
            show_bucket(OBJECTS, opened.info, json, f"Bucket {bucket} is sealed already")
            return
        question = f"seal Bucket {bucket} permanently: it cannot be changed afterwards"
        if not confirmed(session, question, force, typed=bucket):
            return
        wanted: dict[str, Any] = {**opened.info.raw["config"], "sealed": True}
        answer = session.run(lambda manager: manager.stream_update(wanted))
    show_bucket(OBJECTS, answer, json, f"Bucket {bucket} was sealed")


def watch(
    session: Session,
    bucket: BucketName = None,
    deletes: Annotated[bool, Option("--deletes/--no-deletes", help="also show deletions")] = True,
    updates: Annotated[bool, Option("--updates", help="only new changes")] = False,
    count: Count = 0,
    wait: Wait = None,
    json: Json = False,
) -> None:
    """Show the objects of a bucket and their changes, until Ctrl-C, --count or --wait.

    Ends with 7 if nothing happened within the wait.
    """
    watching = WatchOptions(updates=updates, deletes=deletes, limit=count, wait_s=wait)
    name = pick_bucket(session, OBJECTS, bucket)
    with suggesting_in_bucket(session):
        changed = watch_objects(open_bucket(session, name), watching)
        session.run(lambda _: show_changes(OBJECTS, changed, attrgetter("document"), json), lasting=True)


class ObjectLink(Model):
    """Target of a link: an object, or without a name a whole bucket."""

    bucket: str
    name: str = ""


class ObjectOptions(Model):
    """Options of how an object is stored."""

    link: ObjectLink | UnsetType = UNSET
    max_chunk_size: int | UnsetType = UNSET


class Object(Model):
    """An object's metadata as it is stored, with the time of storing as `mtime`; `digest` is SHA-256 in base64."""

    name: str
    bucket: str
    nuid: str
    mtime: str
    size: int = 0
    chunks: int = 0
    digest: str = ""
    deleted: bool = False
    description: str = ""
    headers: dict[str, list[str] | str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    options: ObjectOptions | UnsetType = UNSET


class Fetched(Object):
    """Object that was fetched, and the file that it was written to."""

    output: str = ""


class Removed(Model):
    """Outcome of a removal: an object, with how many chunks were removed, or a bucket.

    Both are empty if it did not exist.
    """

    bucket: str
    success: bool
    name: str | UnsetType = UNSET
    purged: int | UnsetType = UNSET
    missing: bool = False


class Bucket(AnyBucket, kw_only=True, omit_defaults=False):
    """An object bucket; one that is sealed can be read and never changed."""

    sealed: bool


Listed = either("Listed", "A bucket, or an object of one.", Bucket, Object)


def bucket_document(answer: Answer[Any]) -> Bucket:
    return Bucket(**shared_fields(OBJECTS, answer), sealed=answer.value.config.sealed)


VERBS = (
    verb("add, new", add, "cli.object:Bucket", "natsctl object add RELEASES --max-bucket-size 10GiB --compress"),
    verb("edit", edit, "cli.object:Bucket", "natsctl object edit RELEASES --ttl 1y --dry-run"),
    verb(
        "put",
        put,
        "cli.object:Object",
        "natsctl object put RELEASES app-1.2.tgz",
        "tar cz . | natsctl object put RELEASES --name src.tgz",
    ),
    verb(
        "get",
        get,
        "cli.object:Fetched",
        "natsctl object get RELEASES app-1.2.tgz -O /tmp/app.tgz",
        "natsctl object get RELEASES notes.txt -O -",
    ),
    verb("del, rm, delete", rm, "cli.object:Removed", "natsctl object rm RELEASES app-1.1.tgz --force"),
    verb("info, show, i", info, "cli.object:Listed"),
    verb("ls, list", ls, "cli.object:Listed[]", "natsctl object ls", "natsctl object ls RELEASES -j"),
    verb("seal", seal, "cli.object:Bucket"),
    verb("watch", watch, "cli.object:Object*"),
)
