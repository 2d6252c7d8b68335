"""Entries of key-value buckets: `natsctl kv put`, `get`, `create`, `update`, `history`, `revert` and `watch`.

A value is text if it is UTF-8 (`value`), else base64 (`value_base64`): never both, and neither where the value
was not read or the entry is a deletion; `length` is its bytes in every case. Times are RFC 3339, times to live
nanoseconds.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

from natsctl.api.errors import UsageError
from natsctl.api.units import parse_duration
from natsctl.cli.buckets import BucketName, TheBucket, pick_bucket, show_changes, suggesting_in_bucket
from natsctl.cli.framework import output
from natsctl.cli.framework.command_line import Dash
from natsctl.cli.framework.consent import check_consent, confirmed
from natsctl.cli.framework.flags import Force, Json, Raw, length_option
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.messaging.bodies import read_body, show_message
from natsctl.cli.render.text import duration, safe
from natsctl.client.buckets import KV, WatchOptions
from natsctl.client.buckets import Entry as ReadEntry
from natsctl.client.kv import KeyNotFoundError, entries
from natsctl.client.kv import KeyValueBucket as OpenBucket
from natsctl.client.kv import watch as watch_entries
from natsctl.hints import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.client.requests import Answer


def read_ttl(text: str) -> int:
    ns = parse_duration(text)
    if ns <= 0:
        raise ValueError("a key lives 1s at least")
    return ns


Key = Annotated[str, Argument(metavar="KEY", help="the key")]
Value = Annotated[str | None, Argument(metavar="VALUE", help="the value; without it, stdin is read")]
Ttl = Annotated[int, Option("--ttl", metavar="DURATION", help="remove the key after this time", read=read_ttl)]


def put(session: Session, bucket: TheBucket, key: Key, value: Value = None, json: Json = False) -> None:
    """Set a key."""
    body = _body(value)
    _write(session, bucket, key, json, lambda opened: opened.put(key, body), value)


def create(
    session: Session, bucket: TheBucket, key: Key, value: Value = None, ttl: Ttl = 0, json: Json = False
) -> None:
    """Set a key that does not exist, or was deleted."""
    body = _body(value)
    opened = _write(session, bucket, key, json, lambda opened: opened.create(key, body, ttl), value)
    if ttl and not json and opened.shortest_ttl_ns > ttl:
        output.note(f"warning: it lives {duration(opened.shortest_ttl_ns)}, as long as the bucket keeps markers")


def update(
    session: Session,
    bucket: TheBucket,
    key: Key,
    value: Value = None,
    revision: Annotated[
        int | None,
        Argument(metavar="REVISION", help="the revision that the key must be at", min=0),
    ] = None,
    json: Json = False,
) -> None:
    """Set a key if it is at a given revision; otherwise nothing changes, and the exit code is 4."""
    if revision is None:
        raise UsageError("a revision is needed: give REVISION", hint="natsctl kv get -j shows which one the key is at")
    body = _body(value)
    _write(session, bucket, key, json, lambda opened: opened.update(key, body, revision), value)


def revert(
    session: Session,
    bucket: TheBucket,
    key: Key,
    revision: Annotated[int, Argument(metavar="REVISION", help="the revision to go back to", min=1)],
    force: Force = False,
    json: Json = False,
) -> None:
    """Set a key to its value at an earlier revision, unless it is changed meanwhile."""
    question = f"revert {bucket} > {key} to revision {revision}"
    check_consent(session, question, force)

    async def look(opened: OpenBucket) -> tuple[ReadEntry, ReadEntry | None]:
        return await opened.get(key, revision), await opened.last(key, fresh=True)

    with suggesting_in_bucket(session):
        opened = open_bucket(session, bucket)
        old, now = session.run(lambda _: look(opened))
    latest = now.revision if now is not None else 0
    if latest == revision:
        raise UsageError(f"key {key} is at revision {revision} already")
    if not force and not json:
        from natsctl.cli.render.bucket_pages import render_revert

        output.note(render_revert(old, now))
    if not confirmed(session, question, force):
        return
    _write(session, bucket, key, json, lambda _: opened.update(key, old.value or b"", latest), quiet=False)


def open_bucket(session: Session, bucket: str) -> OpenBucket:
    return session.run(lambda manager: OpenBucket.open(manager, bucket))


def _body(value: str | None) -> bytes:
    """Return the value that was given, else the content of stdin (also for `-`); a terminal is not read."""
    given = "" if value is None or isinstance(value, Dash) else value
    if given or sys.stdin is None or sys.stdin.isatty():
        return read_body(given)
    return sys.stdin.buffer.read()


def _write(
    session: Session,
    bucket: str,
    key: str,
    json: bool,
    write: Callable[[OpenBucket], Awaitable[Answer[Any]]],
    value: str | None = None,
    *,
    quiet: bool = True,
) -> OpenBucket:
    """Write, print the given `value`, and return the bucket.

    The new revision is printed at a terminal, and elsewhere unless `quiet`.
    """

    async def opened_and_written(manager: Manager) -> tuple[OpenBucket, Answer[Any]]:
        opened = await OpenBucket.open(manager, bucket)
        return opened, await write(opened)

    with suggesting_in_bucket(session):
        opened, answer = session.ask(opened_and_written, changes=True)
    if json:
        output.emit_json(written_document(bucket, key, "PUT", answer.raw))
        return opened
    if value is not None:
        output.emit_bytes(value.encode("utf-8", "surrogateescape") + b"\n")
    if not quiet or sys.stderr.isatty():
        output.note(safe(f"{bucket} > {key} is at revision {answer.value.seq}"))
    return opened


AtRevision = Annotated[int | None, Option("--revision", metavar="N", help="the value at this revision", min=1)]


def get(
    session: Session,
    bucket: TheBucket,
    key: Key,
    revision: AtRevision = None,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Show the value of a key; --raw writes only the value."""

    async def read(manager: Manager) -> ReadEntry:
        return await (await OpenBucket.open(manager, bucket)).get(key, revision or 0)

    with suggesting_in_bucket(session):
        entry = session.ask(read)
    if json:
        output.emit_json(entry_document(entry))
    elif raw:
        output.emit_bytes(entry.value or b"")
    else:
        from natsctl.cli.render.bucket_pages import render_heading

        show_message(render_heading(entry), [], entry.value or b"")
        output.emit("")


def history(
    session: Session,
    bucket: TheBucket,
    key: Annotated[str, Argument(metavar="KEY", help="the key, or a filter such as db.*")],
    json: Json = False,
) -> None:
    """Show the history of a key, including deletions."""
    with suggesting_in_bucket(session):
        opened = open_bucket(session, bucket)
        found = session.run(lambda _: entries(opened, key, history=True, deletes=True))
        if not found:
            raise KeyNotFoundError(opened, key, f"key {key} does not exist in bucket {bucket}")
    if json:
        output.emit_json([entry_document(entry) for entry in found])
        return
    from natsctl.cli.render.bucket_pages import render_history

    output.show_table(render_history(bucket, key, found))


Count = Annotated[int, Option("--count", metavar="N", help="end after N entries, 0 for never", min=0)]
Wait = Annotated[float | None, length_option("--wait", help="end after this time without a change")]


def watch(
    session: Session,
    bucket: BucketName = None,
    keys: Annotated[str, Argument(metavar="FILTER", help="only these keys, such as db.* or db.>")] = ">",
    history: Annotated[bool, Option("--history", help="start with all kept values")] = False,
    deletes: Annotated[bool, Option("--deletes/--no-deletes", help="also show deletions")] = True,
    updates: Annotated[bool, Option("--updates", help="only new changes")] = False,
    revision: Annotated[int, Option("--revision", metavar="N", help="start at this revision", min=0)] = 0,
    count: Count = 0,
    wait: Wait = None,
    json: Json = False,
) -> None:
    """Show the keys of a bucket and their changes, until Ctrl-C, --count or --wait.

    Ends with 7 if nothing happened within the wait.
    """
    if (history or revision) and updates:
        raise UsageError("--updates excludes --history and --revision")
    watching = WatchOptions(keys, history, updates, revision, deletes, count, wait)
    name = pick_bucket(session, KV, bucket)
    with suggesting_in_bucket(session):
        changed = watch_entries(open_bucket(session, name), watching)
        session.run(lambda _: show_changes(KV, changed, entry_document, json), lasting=True)


def entry_document(entry: ReadEntry) -> dict[str, Any]:
    names = ("bucket", "key", "revision", "operation", "created", "length", "delta")
    document = {name: getattr(entry, name) for name in names}
    if entry.value is not None and not entry.deleted:
        document |= value_fields(entry.value)
    if entry.ttl_ns:
        document["ttl"] = entry.ttl_ns
    return document


def value_fields(value: bytes) -> dict[str, str]:
    """Return the value as text if it is UTF-8, else as base64."""
    try:
        return {"value": value.decode()}
    except UnicodeDecodeError:
        import base64

        return {"value_base64": base64.b64encode(value).decode()}


def written_document(bucket: str, key: str, operation: str, ack: dict[str, Any]) -> dict[str, Any]:
    return {"bucket": bucket, "key": key, "operation": operation, "revision": ack.get("seq"), **ack}


VERBS = (
    verb(
        "add, new",
        "kv_buckets.add",
        "cli.answer_documents:Bucket",
        "natsctl kv add CONFIG --history 5 --ttl 30d",
        "natsctl kv add COPY --mirror CONFIG",
    ),
    verb("edit", "kv_buckets.edit", "cli.answer_documents:Bucket", "natsctl kv edit CONFIG --history 10 --dry-run"),
    verb(
        "put",
        put,
        "cli.answer_documents:Written",
        "natsctl kv put CONFIG db.host db1.example.net",
        "cat cert.pem | natsctl kv put CONFIG cert",
        "date | natsctl kv put CONFIG last_run -",
    ),
    verb(
        "get",
        get,
        "cli.answer_documents:Entry",
        "natsctl kv get CONFIG db.host",
        "natsctl kv get CONFIG db.host --revision 3 --raw",
    ),
    verb("create", create, "cli.answer_documents:Written", 'natsctl kv create LOCKS job.7 "$HOSTNAME" --ttl 5m'),
    verb("update", update, "cli.answer_documents:Written", "natsctl kv update CONFIG db.host db2.example.net 7"),
    verb(
        "del, rm, delete",
        "kv_buckets.rm",
        "cli.answer_documents:Removed",
        "natsctl kv del CONFIG db.host",
        "natsctl kv del CONFIG --all --force --missing-ok",
    ),
    verb(
        "purge",
        "kv_buckets.purge",
        "cli.answer_documents:Purged",
        "natsctl kv purge CONFIG db.host",
        'natsctl kv purge CONFIG "db.>" --dry-run',
    ),
    verb("history", history, "cli.answer_documents:Entry[]", "natsctl kv history CONFIG db.host"),
    verb("revert", revert, "cli.answer_documents:Written", "natsctl kv revert CONFIG db.host 3"),
    verb("info, view, status", "kv_buckets.info", "cli.answer_documents:Bucket"),
    verb(
        "watch",
        watch,
        "cli.answer_documents:Entry*",
        'natsctl kv watch CONFIG "db.>" --updates',
        "natsctl kv watch CONFIG --count 1 --wait 1m -j",
    ),
    verb(
        "ls, list",
        "kv_buckets.ls",
        "cli.answer_documents:Listed[]",
        "natsctl kv ls",
        'natsctl kv ls CONFIG "db.*" -v --display-value',
    ),
    verb("compact", "kv_buckets.compact", "cli.answer_documents:Purged", "natsctl kv compact CONFIG --force"),
)
