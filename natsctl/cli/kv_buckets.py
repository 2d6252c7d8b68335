"""Key-value buckets and their keys as a whole: `natsctl kv add`, `edit`, `info`, `ls`, `del`, `purge` and `compact`."""

from __future__ import annotations

import time

from natsctl.api.errors import UsageError
from natsctl.api.units import MINUTE, format_size, parse_length, plural
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
    remove_bucket,
    report_missing,
    show_bucket,
    storage_flag,
    suggesting_in_bucket,
)
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import check_consent, confirmed
from natsctl.cli.framework.flags import (
    DURATION,
    MESSAGE_SIZE,
    METADATA,
    ON,
    SOURCE,
    SOURCES,
    SUBJECT,
    SWITCH,
    TEXT,
    WHOLE,
    Config,
    Flag,
    FlagKind,
    Force,
    Given,
    IfNotExists,
    Json,
    MissingOk,
    Names,
    Unset,
    apply,
    flagged,
    removed,
    without_defaults,
)
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.session import Session
from natsctl.cli.kv import entry_document, open_bucket, read_ttl
from natsctl.cli.render.text import safe
from natsctl.client import asset_config
from natsctl.client.buckets import ALL_KEYS, KV, Entry, check_pattern, is_pattern
from natsctl.client.kv import KeyNotFoundError, KeyValueBucket, entries, mark_purged, removals
from natsctl.client.kv import compact as compact_bucket
from natsctl.client.kv import keys as keys_of
from natsctl.hints import Annotated, Any


def _history(text: str) -> int:
    values = WHOLE.read(text)
    asset_config.set_history({}, values)
    return int(values)


def _no_mirror(config: Config, value: Any) -> None:
    if value:
        asset_config.drop_mirror(config)


HISTORY = FlagKind("N", _history)
KV_FLAGS: tuple[Flag, ...] = (
    DESCRIPTION,
    Flag("--history", HISTORY, asset_config.set_history, "values kept for each key, 1 to 64", default="1"),
    storage_flag("values"),
    Flag("--ttl", DURATION, asset_config.set_ttl, "how long values are kept, 0 for no limit", default="0"),
    Flag(
        "--marker-ttl",
        DURATION,
        asset_config.set_marker_ttl,
        "allow keys with a time to live, and keep markers of expired keys this long",
    ),
    REPLICAS,
    Flag(
        "--max-value-size",
        MESSAGE_SIZE,
        "max_msg_size",
        "maximum size of a value, -1 for no limit",
        default="-1",
    ),
    BUCKET_SIZE,
    *PLACEMENT,
    COMPRESS,
    *METADATA,
    Flag("--republish-source", SUBJECT, "republish.src", "subjects to republish after storing"),
    Flag("--republish-destination", SUBJECT, "republish.dest", "subject to republish to"),
    Flag("--republish-headers", SWITCH, "republish.headers_only", "republish without values"),
    Flag("--no-republish", ON, removed("republish"), "stop republishing", add=False),
    Flag("--mirror", SOURCE, asset_config.set_mirror, "mirror this bucket; writes go there", edit=False),
    Flag("--mirror-domain", TEXT, asset_config.set_mirror_domain, "the domain of the bucket to copy", edit=False),
    Flag("--no-mirror", ON, _no_mirror, "turn a mirror into an independent bucket", add=False),
    Flag("--source", SOURCES, asset_config.add_sources, "also copy the keys of this bucket"),
)

KV_ADD = tuple(flag for flag in KV_FLAGS if flag.add)
KV_EDIT = without_defaults([flag for flag in KV_FLAGS if flag.edit])

FIELDS = {
    "ttl": "max_age",
    "marker-ttl": "subject_delete_marker_ttl",
    "history": "max_msgs_per_subject",
    "compress": "compression",
    "tags": "placement.tags",
    "cluster": "placement.cluster",
    "source": "sources",
    "mirror-domain": "mirror.external",
}
"""A bucket's names for fields of its stream, for --unset."""


@flagged(KV_ADD)
def add(
    session: Session,
    given: Given,
    bucket: TheBucket,
    if_not_exists: IfNotExists = False,
    json: Json = False,
) -> None:
    """Create a key-value bucket; succeeds too if it exists with this configuration."""
    wanted = asset_config.new_kv_bucket(bucket)
    apply(wanted, KV_ADD, given)
    asset_config.settle(wanted)

    create_bucket(session, KV, bucket, wanted, if_not_exists=if_not_exists, json=json)


@flagged(KV_EDIT)
def edit(
    session: Session,
    given: Given,
    bucket: BucketName = None,
    unset_fields: Unset = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Change a bucket as the flags say, and nothing else."""
    live = live_bucket(session, KV, bucket)
    _warn_of_promotion(live.raw["config"], given, json)

    edit_bucket(session, KV, live, KV_EDIT, given, unset_fields, FIELDS, asset_config.settle, force=force, json=json)


def _warn_of_promotion(config: Config, given: Given, json: bool) -> None:
    """Warn that the values of a mirror that becomes an ordinary bucket keep the subjects of their origin."""
    mirror, bucket = config.get("mirror") or {}, KV.bucket_of(config["name"])
    origin = KV.bucket_of(mirror.get("name", ""))
    if "--no-mirror" in given and origin not in ("", bucket) and not mirror.get("subject_transforms") and not json:
        output.note(
            f"warning: copied keys keep the subjects of bucket {safe(origin)}, and this bucket cannot read them"
        )


def info(session: Session, bucket: BucketName = None, json: Json = False) -> None:
    """Show a bucket's configuration and state."""
    show_bucket(KV, live_bucket(session, KV, bucket), json)


KeyFilter = Annotated[str | None, Argument(metavar="FILTER", help="only these keys, such as db.* or db.>")]
Verbose = Annotated[bool, Option("--verbose", "-v", help="a table of the keys")]
Values = Annotated[bool, Option("--display-value", help="include values")]


def ls(
    session: Session,
    bucket: BucketName = None,
    keys: KeyFilter = None,
    names: Names = False,
    verbose: Verbose = False,
    values: Values = False,
    json: Json = False,
) -> None:
    """List the buckets, or the keys of one.

    With -j keys are whole entries, with values only if --display-value is given; with -n they are names.
    """
    with suggesting_in_bucket(session):
        if bucket is None:
            list_buckets(session, KV, names=names, json=json)
        else:
            _list_keys(session, bucket, keys or ">", names=names, table=verbose or values, values=values, json=json)


def _list_keys(
    session: Session, bucket: str, pattern: str, *, names: bool, table: bool, values: bool, json: bool
) -> None:
    if names and table:
        raise UsageError("--names and --verbose exclude each other")
    opened = open_bucket(session, bucket)
    if names or not (table or json):
        found = session.run(lambda _: keys_of(opened, pattern))
        output.emit_json(found) if json else output.emit_names(found)
        if not found and not names:
            _show_none(bucket, pattern)
        return
    whole = session.run(lambda _: entries(opened, pattern, values=values))
    whole.sort(key=lambda entry: entry.key)
    if json:
        output.emit_json([entry_document(entry) for entry in whole])
    elif whole:
        from natsctl.cli.render.bucket_pages import render_keys

        output.show_table(render_keys(bucket, whole, values=values))
    else:
        _show_none(bucket, pattern)


def _show_none(bucket: str, pattern: str) -> None:
    output.note(f"No keys in bucket {safe(bucket)}" + (f" match {safe(pattern)}" if pattern != ">" else ""))


Revision = Annotated[
    int | None,
    Option("--revision", metavar="N", help="only if the key is at this revision", min=1),
]
WholeBucket = Annotated[bool, Option("--all", help="delete the bucket with every key, instead of KEY")]
EveryKey = Annotated[bool, Option("--all", help="purge every key of the bucket, instead of KEY")]


def rm(
    session: Session,
    bucket: TheBucket,
    key: Annotated[str | None, Argument(metavar="KEY", help="the key")] = None,
    whole: WholeBucket = False,
    revision: Revision = None,
    force: Force = False,
    missing_ok: MissingOk = False,
    json: Json = False,
) -> None:
    """Delete a key, keeping its history, or with --all the bucket itself with every key."""
    check_key_or_all("KEY", key, whole, "delete the whole bucket")
    if whole and revision is not None:
        raise UsageError("--revision is for a single key")
    check_consent(session, f"delete {f'key {bucket} > {key}' if key else f'Bucket {bucket}'}", force)
    with suggesting_in_bucket(session):
        opened = open_if_there(session, open_bucket, bucket, missing_ok, json, key=key)
        if opened is None:
            return
        if key is None:
            _remove_bucket(session, opened, force, json)
        else:
            _remove_key(session, opened, key, revision, force=force, missing_ok=missing_ok, json=json)


def _remove_bucket(session: Session, bucket: KeyValueBucket, force: bool, json: bool) -> None:
    state = bucket.info.value.state
    session.effect |= {"values": state.messages, "keys": state.num_subjects, "bytes": state.bytes}
    held = f"{plural(state.messages, 'value')} of {plural(state.num_subjects, 'key')} ({format_size(state.bytes)})"
    remove_bucket(session, KV, bucket.name, held, force=force, json=json)


def _remove_key(
    session: Session,
    bucket: KeyValueBucket,
    key: str,
    revision: int | None,
    *,
    force: bool,
    missing_ok: bool,
    json: bool,
) -> None:
    entry = _present(session, bucket, key, missing_ok, json)
    if entry is None:
        return
    session.effect["deletes_revision"] = entry.revision
    if not confirmed(session, f"delete key {bucket.name} > {key}", force):
        return
    answer = session.run(lambda _: bucket.delete(key, revision))
    _show_removed(bucket, key, answer.value.seq, "deleted", json)


def _present(session: Session, bucket: KeyValueBucket, key: str, missing_ok: bool, json: bool) -> Entry | None:
    try:
        return session.run(lambda _: bucket.get(key, fresh=True))
    except KeyNotFoundError:
        if not missing_ok:
            raise
        report_missing(bucket.name, json, key=key)
        return None


def _show_removed(bucket: KeyValueBucket, key: str, revision: int, done: str, json: bool) -> None:
    if json:
        output.emit_json({"bucket": bucket.name, "key": key, "success": True, "revision": revision})
    else:
        output.note(safe(f"{bucket.name} > {key} was {done} at revision {revision}"))


def purge(
    session: Session,
    bucket: TheBucket,
    key: Annotated[
        str | None,
        Argument(metavar="KEY", help="the key, or a filter such as db.>"),
    ] = None,
    whole: EveryKey = False,
    ttl: Annotated[
        int, Option("--ttl", metavar="DURATION", help="remove the marker after this time", read=read_ttl)
    ] = 0,
    markers: Annotated[bool, Option("--markers", help="with a filter: leave a marker for each key too")] = False,
    revision: Revision = None,
    force: Force = False,
    missing_ok: MissingOk = False,
    json: Json = False,
) -> None:
    """Delete a key with its history, or many: the keys of a filter, or with --all every key of the bucket.

    For one key a marker stays, for as long as --ttl says, so that watchers see the deletion. The keys of a filter, or
    of the whole bucket, are removed without markers, unless --markers or --ttl is given.
    """
    check_key_or_all("KEY", key, whole, "purge every key of the bucket")
    many = key is None or is_pattern(key)
    if many and revision is not None:
        raise UsageError("--revision is for a single key")
    check_pattern(key or ALL_KEYS)
    what = f"keys {key} of Bucket {bucket}" if many and key else f"key {bucket} > {key}"
    check_consent(session, f"purge {what if key else f'every key of Bucket {bucket}'}", force)
    with suggesting_in_bucket(session):
        opened = open_if_there(session, open_bucket, bucket, missing_ok, json, key=key)
        if opened is None:
            return
        if key is not None and not many:
            if _present_or_marked(session, opened, key, missing_ok, json):
                _purge_key(session, opened, key, revision, ttl, force=force, json=json)
        else:
            _purge_many(session, opened, key or ALL_KEYS, ttl, markers or bool(ttl), force=force, json=json)


def _present_or_marked(session: Session, bucket: KeyValueBucket, key: str, missing_ok: bool, json: bool) -> bool:
    """Return whether the key has a history; a deleted key still has one. Raises KeyNotFoundError."""
    if session.run(lambda _: bucket.last(key, fresh=True)) is not None:
        return True
    return _present(session, bucket, key, missing_ok, json) is not None


def _purge_key(
    session: Session, bucket: KeyValueBucket, key: str, revision: int | None, ttl_ns: int, *, force: bool, json: bool
) -> None:
    kept = session.effect["purges"] = sum(session.run(lambda _: bucket.kept(key)).values())
    question = f"purge key {bucket.name} > {key} with {plural(kept, 'value')}"
    if not confirmed(session, question, force):
        return
    answer = session.run(lambda _: bucket.purge(key, revision, ttl_ns))
    _show_removed(bucket, key, answer.value.seq, "purged", json)


def _purge_many(
    session: Session, bucket: KeyValueBucket, pattern: str, ttl_ns: int, markers: bool, *, force: bool, json: bool
) -> None:
    found = session.run(lambda _: bucket.kept(pattern))
    keys, messages = list(found), sum(found.values())
    session.effect |= {"keys": len(keys), "purges": messages}
    held = f"{plural(len(keys), 'key')} with {plural(messages, 'value')}"
    question = f"purge {held} of Bucket {bucket.name}"
    if not confirmed(session, question, force, typed=bucket.name):
        return
    done: dict[str, Any] = {"bucket": bucket.name, "success": True, "keys": len(keys)}
    if markers:
        from natsctl.cli.framework.live import progress

        with progress(f"Purging {bucket.name}", len(keys), "keys", quiet=json) as tracker:
            session.run(lambda _: mark_purged(bucket, keys, ttl_ns, tracker.at))
        done |= {"markers": len(keys), "purged": messages}
    else:
        answer = session.run(lambda _: bucket.forget(pattern))
        done |= {**answer.raw, "purged": answer.value.purged}
    output.emit_json(done) if json else output.note(f"Purged {held} of bucket {safe(bucket.name)}")


def compact(
    session: Session,
    bucket: TheBucket,
    older_than: Annotated[
        int,
        Option(
            "--older-than",
            metavar="DURATION",
            help="also remove markers of deletions older than this",
            read=parse_length,
        ),
    ] = 30 * MINUTE,
    force: Force = False,
    json: Json = False,
) -> None:
    """Purge deleted keys: their history, and old delete markers."""
    check_consent(session, f"purge the deleted keys of Bucket {bucket}", force)
    with suggesting_in_bucket(session):
        opened = open_bucket(session, bucket)
        found = session.run(lambda _: removals(opened, older_than, time.time_ns()))
    markers = sum(one.marker for one in found)
    done: dict[str, Any] = {"bucket": bucket, "success": True, "keys": len(found), "markers": markers, "purged": 0}
    session.effect |= {"keys": len(found), "markers": markers}
    if found:
        question = f"purge {plural(len(found), 'deleted key')} of Bucket {bucket}"
        if not confirmed(session, question, force):
            return
        from natsctl.cli.framework.live import progress

        with progress(f"Compacting {bucket}", len(found), "keys", quiet=json) as tracker:
            done["purged"] = session.run(lambda _: compact_bucket(opened, found, tracker.at))
    if json:
        output.emit_json(done)
        return
    newer = len(found) - markers
    kept = f", {plural(newer, 'newer marker')} {'stays' if newer == 1 else 'stay'}" if newer else ""
    gone, keys = plural(done["purged"], "message"), plural(len(found), "deleted key")
    output.note(f"Removed {gone} of {keys} of bucket {safe(bucket)}{kept}")
