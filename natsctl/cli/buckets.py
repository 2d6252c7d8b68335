"""Buckets of both kinds: choice, creation, changes, display and removal, and suggestions for unknown names."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from natsctl.api.errors import ApiResponseError, ErrCode, NatsctlError, UsageError
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import confirmed
from natsctl.cli.framework.flags import COUNT, SIZE, SWITCH, TEXT, WORDS, Config, Flag, Given, choice, placed
from natsctl.cli.framework.output import emit_name_pages
from natsctl.cli.framework.parameters import Argument
from natsctl.cli.framework.resolve import did_you_mean, pick
from natsctl.cli.render.text import safe
from natsctl.client.buckets import (
    KV,
    BucketKind,
    BucketNotFoundError,
    bucket_info,
    bucket_infos,
    bucket_name_pages,
    bucket_names,
)
from natsctl.hints import TYPE_CHECKING, Annotated, Any, TypeVar

if TYPE_CHECKING:
    from natsctl.cli.answer_documents import AnyBucket
    from natsctl.cli.framework.session import Session
    from natsctl.client.kv import KeyNotFoundError
    from natsctl.client.object_store import ObjectNotFoundError
    from natsctl.client.requests import Answer


T = TypeVar("T")

BucketName = Annotated[str | None, Argument(metavar="BUCKET", help="name of the bucket")]
TheBucket = Annotated[str, Argument(metavar="BUCKET", help="name of the bucket")]

_NO_JETSTREAM = "buckets are streams: they need an account with JetStream (natsctl account info)"
MAX_SUGGESTED_FROM = 5_000
"""Keys or objects that are read for a suggestion; in larger buckets an error would take too long."""
HINTS: dict[int, str] = {
    ErrCode.NOT_ENABLED_FOR_ACCOUNT: _NO_JETSTREAM,
    ErrCode.NOT_ENABLED: _NO_JETSTREAM,
    ErrCode.STREAM_MESSAGE_EXCEEDS_MAXIMUM: "the value is too large: kv edit --max-value-size raises the limit",
    ErrCode.STREAM_STORE_FAILED: "the bucket is full: raise --max-bucket-size with edit, or remove something",
    ErrCode.STREAM_SEALED: "the bucket is sealed: it is read-only",
}


def pick_bucket(session: Session, kind: BucketKind, given: str | None) -> str:

    def names() -> list[str]:
        with suggesting_in_bucket(session):
            return session.run(lambda manager: bucket_names(manager, kind))

    return pick(session, given, "Bucket", names, f"no {kind.noun}s are defined")


def check_key_or_all(argument: str, given: str | None, whole: bool, doing: str) -> None:
    """Raise UsageError unless a key or object, or --all, was given: a missing argument never widens a command."""
    if given is None and not whole:
        raise UsageError(f"{argument} is missing", hint=f"--all would {doing}")
    if given is not None and whole:
        raise UsageError(f"{argument} and --all exclude each other")


@contextmanager
def suggesting_in_bucket(session: Session) -> Iterator[None]:
    try:
        yield
    except NatsctlError as failure:
        failure.hint = failure.hint or _hint(session, failure)
        raise


def _hint(session: Session, failure: NatsctlError) -> str:
    from natsctl.client.kv import KeyNotFoundError
    from natsctl.client.object_store import ObjectNotFoundError

    if isinstance(failure, BucketNotFoundError):
        return _bucket_hint(session, failure)
    if isinstance(failure, KeyNotFoundError):
        return _key_hint(session, failure)
    if isinstance(failure, ObjectNotFoundError):
        return _object_hint(session, failure)
    return HINTS.get(failure.err_code, "") if isinstance(failure, ApiResponseError) else ""


def _bucket_hint(session: Session, failure: BucketNotFoundError) -> str:
    kind = failure.kind
    names = _asked(lambda: session.run(lambda manager: bucket_names(manager, kind)))
    if not names:
        return f"no {kind.noun}s are defined" if names is not None else ""
    return safe(did_you_mean(failure.bucket, names) or f"natsctl {kind.word} ls shows the buckets there are")


def _key_hint(session: Session, failure: KeyNotFoundError) -> str:
    from natsctl.client.kv import keys

    bucket = failure.bucket
    if failure.last is not None:
        return safe(f"natsctl kv history {bucket.name} {failure.key} shows its earlier values")
    listing = f"natsctl kv ls {bucket.name} shows the keys there are"
    if bucket.info.value.state.num_subjects > MAX_SUGGESTED_FROM:
        return safe(listing)
    found = _asked(lambda: session.run(lambda manager: keys(bucket.at(manager))))
    if failure.key in (found or ()):
        return safe(f"natsctl kv history {bucket.name} {failure.key} shows the revisions that are kept")
    return safe(did_you_mean(failure.key, found or ()) or (listing if found else f"bucket {bucket.name} has no keys"))


def _object_hint(session: Session, failure: ObjectNotFoundError) -> str:
    from natsctl.client.object_store import objects

    bucket = failure.bucket
    listing = f"natsctl object ls {bucket.name} shows the objects there are"
    if bucket.info.value.state.num_subjects > MAX_SUGGESTED_FROM:
        return safe(listing)
    found = _asked(lambda: [one.name for one in session.run(lambda _: objects(bucket))])
    return safe(
        did_you_mean(failure.name, found or ()) or (listing if found else f"bucket {bucket.name} has no objects")
    )


def _asked(ask: Callable[[], list[str]]) -> list[str] | None:
    """Return the answer to a request for a hint.

    None if that fails too: the earlier failure is reported.
    """
    try:
        return ask()
    except NatsctlError:
        return None


def _document(kind: BucketKind, answer: Answer[Any]) -> AnyBucket:
    if kind is KV:
        from natsctl.cli.answer_documents import bucket_document

        return bucket_document(answer)
    from natsctl.cli.object import bucket_document as object_bucket_document

    return object_bucket_document(answer)


def show_bucket(kind: BucketKind, answer: Answer[Any], json: bool, done: str = "") -> None:
    if json:
        output.emit_json(_document(kind, answer))
        return
    if done:
        output.note(safe(done))
    from natsctl.cli.render.bucket_pages import render_bucket

    output.show_page(render_bucket(kind, answer.value))


def list_buckets(session: Session, kind: BucketKind, *, names: bool, json: bool) -> None:
    if names and json:
        output.emit_json(session.ask(lambda manager: bucket_names(manager, kind)))
        return
    if names:
        emit_name_pages(session.ask, lambda manager: bucket_name_pages(manager, kind))
        return
    from natsctl.cli.render.streams import LISTED

    infos, absent = session.ask(lambda manager: bucket_infos(manager, kind, None if json else LISTED))
    if json:
        output.emit_json([_document(kind, info) for info in infos])
    elif infos:
        from natsctl.cli.render.bucket_pages import render_buckets

        output.show_table(render_buckets(kind, [info.value for info in infos], time.time_ns()))
    else:
        output.emit(f"No {kind.noun}s defined")
    if absent:
        output.note(f"warning: inaccessible buckets: {', '.join(safe(name) for name in absent)}")


async def show_changes(
    kind: BucketKind, changed: AsyncIterator[T], document: Callable[[T], dict[str, Any]], json: bool
) -> None:
    """Print each change of a bucket as it comes, with `json` as a document."""
    async for entry in changed:
        if json:
            output.emit_json_line(document(entry))
            continue
        from natsctl.cli.render.bucket_pages import render_kv_event, render_object_event

        render: Callable[..., str] = render_kv_event if kind is KV else render_object_event
        output.emit(render(entry, output.width(), coloured=output.has_color(sys.stdout)))
        sys.stdout.flush()


def remove_bucket(session: Session, kind: BucketKind, bucket: str, held: str, *, force: bool, json: bool) -> None:
    if not confirmed(session, f"delete Bucket {bucket} with {held}", force, typed=bucket):
        return
    with suggesting_in_bucket(session):
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
    """Return the opened bucket; report and return None if it does not exist and that is no error."""
    try:
        return opening(session, bucket)
    except BucketNotFoundError:
        if not missing_ok:
            raise
        report_missing(bucket, json, **held)
        return None


def report_missing(bucket: str, json: bool, **held: str | None) -> None:
    """Report that a bucket, or an entry of it (`key=…`, `name=…`), does not exist; not an error."""
    there = {field: name for field, name in held.items() if name}
    if json:
        output.emit_json({"bucket": bucket, **there, "success": True, "missing": True})
    else:
        named = " > ".join((bucket, *there.values())) if there else f"Bucket {bucket}"
        output.note(safe(f"{named} does not exist"))


def compressed(config: Config, value: bool) -> None:
    config["compression"] = "s2" if value else "none"


def storage_flag(kept: str) -> Flag:
    of = choice("file", "memory", f="file", m="memory")
    return Flag("--storage", of, "storage", f"where {kept} are kept", edit=False, default="file")


DESCRIPTION = Flag("--description", TEXT, "description", "a description")
REPLICAS = Flag("--replicas", COUNT, "num_replicas", "number of copies in a cluster", default="1")
BUCKET_SIZE = Flag("--max-bucket-size", SIZE, "max_bytes", "size limit of the bucket, -1 for no limit", default="-1")
PLACEMENT = (
    Flag("--tags", WORDS, placed("tags"), "place only on servers with these tags", aliases=("--tag",)),
    Flag("--cluster", TEXT, placed("cluster"), "place in this cluster"),
)
COMPRESS = Flag("--compress", SWITCH, compressed, "compress stored data")


def create_bucket(
    session: Session, kind: BucketKind, bucket: str, wanted: Config, *, if_not_exists: bool, json: bool
) -> None:
    from natsctl.cli.assets import create_asset

    def create() -> Answer[Any]:
        try:
            return session.ask(lambda manager: manager.stream_create(wanted), changes=True)
        except ApiResponseError as failure:
            if failure.err_code == ErrCode.STREAM_NAME_EXIST:
                failure.args = (f"bucket {bucket} exists with another configuration",)
                failure.hint = f"natsctl {kind.word} edit {bucket} changes it, --if-not-exists keeps it as it is"
            raise

    with suggesting_in_bucket(session):
        create_asset(
            session,
            f"Bucket {bucket}",
            wanted,
            create,
            lambda: _bucket_if_there(session, kind, bucket),
            lambda answer, line: show_bucket(kind, answer, json, line),
            if_not_exists=if_not_exists,
            json=json,
        )


def _bucket_if_there(session: Session, kind: BucketKind, bucket: str) -> Answer[Any] | None:
    try:
        return session.ask(lambda manager: bucket_info(manager, kind, bucket))
    except BucketNotFoundError:
        return None


def live_bucket(session: Session, kind: BucketKind, given: str | None) -> Answer[Any]:
    name = pick_bucket(session, kind, given)
    with suggesting_in_bucket(session):
        return session.run(lambda manager: bucket_info(manager, kind, name))


def edit_bucket(
    session: Session,
    kind: BucketKind,
    live: Answer[Any],
    table: Sequence[Flag],
    given: Given,
    unset_fields: Sequence[str] | None,
    fields: Mapping[str, str],
    settle: Callable[[Config], None],
    *,
    force: bool,
    json: bool,
) -> None:
    """Change the fields of the given flags, and nothing else.

    `fields` maps a bucket's field names to its stream's; `settle` adjusts dependent fields, or raises.
    """
    from natsctl.api.stream import StreamConfig
    from natsctl.api.update_losses import stream_losses
    from natsctl.cli.assets import AssetEdit, Edits, check_given
    from natsctl.cli.render.change import changes
    from natsctl.client.asset_config import normalised

    check_given(session, given or unset_fields, "give flags such as --description TEXT, or --unset FIELD")
    before, what = live.raw["config"], f"Bucket {kind.bucket_of(live.raw['config']['name'])}"
    own = [fields.get(word.lstrip("-"), word) for text in unset_fields or () for word in text.replace(",", " ").split()]
    wanted, _ = Edits(unset=own).applied(session, before, {}, given, table, StreamConfig, what)
    wanted = normalised(wanted)
    settle(wanted)

    def show(answer: Answer[Any], line: str) -> None:
        if answer.value.cluster is None:  # a standalone server names itself in the information only
            answer.value.cluster = live.value.cluster
        show_bucket(kind, answer, json, line)

    edit = AssetEdit(
        what,
        changes(normalised(before), wanted),
        stream_losses(before, wanted, live.raw["state"], time.time_ns()),
        lambda manager: manager.stream_update(wanted),
        show,
        labelled=False,
        quiet=not sys.stderr.isatty(),  # the page only, as from the nats tool
    )
    edit.send(session, live, wanted, force=force, json=json)
