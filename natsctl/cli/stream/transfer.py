"""Messages of a stream to and from files: `natsctl stream backup`, `restore`, `export` and `import`."""

from __future__ import annotations

import hashlib
import json as json_text
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.api.model import Model
from natsctl.api.times import format_time
from natsctl.api.units import format_size, plural
from natsctl.cli.backup.transfer_flags import (
    IDLE_TIMEOUT,
    RETRIES,
    Check,
    ChunkSize,
    Cluster,
    Consumers,
    ForceReplace,
    IdleTimeout,
    OnExisting,
    Replicas,
    Retries,
    Tags,
    WindowSize,
    load_overrides,
    progress_log,
    read_existing,
    read_idle,
    read_size,
    shown,
)
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import check_consent, confirmed, named
from natsctl.cli.framework.flags import ConfigFile, Force, Json, Progress, SparkFlags, read_moment
from natsctl.cli.framework.live import progress
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.resolve import live_stream, suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.render.text import count, duration, safe
from natsctl.cli.stream.info import show_info
from natsctl.client.message import DryRunError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from natsctl.api.stream import StreamConfig
    from natsctl.cli.spark_work import Measured
    from natsctl.cli.sql import Tables
    from natsctl.client.backup.restore import Restored, RestoreOptions
    from natsctl.client.backup.save import SavedStream
    from natsctl.client.backup.transfer import TransferProgress as Transferred
    from natsctl.client.manager import Manager
    from natsctl.spark.files.direct_import import DirectImport
    from natsctl.spark.files.file_export import Exported, FileTarget
    from natsctl.spark.files.file_import import Content


def backup(
    session: Session,
    stream: Annotated[str, Argument(metavar="STREAM", help="name of the stream")],
    target: Annotated[Path, Argument(metavar="TARGET", help="directory, or a file such as ORDERS.tgz")],
    progress: Progress = True,
    check: Check = False,
    consumers: Consumers = True,
    chunk_size: ChunkSize = None,
    window_size: WindowSize = None,
    idle_timeout: IdleTimeout = IDLE_TIMEOUT,
    retries: Retries = RETRIES,
    replay: Annotated[
        bool, Option("--replay", help="read message by message, as for servers without snapshots")
    ] = False,
    force: ForceReplace = False,
    json: Json = False,
) -> None:
    """Back up a stream: configuration, consumers, state and messages, with a manifest and checksums.

    TARGET exists once the backup is complete. After a broken connection the backup starts again. Streams in memory are
    saved too.
    """
    from natsctl.client.backup.save import SaveOptions, save_stream
    from natsctl.client.backup.transfer import RetryingManager

    options = SaveOptions(
        consumers=consumers,
        check=check,
        chunk_size=read_size("--chunk-size", chunk_size),
        window_size=read_size("--window-size", window_size),
        idle_s=read_idle(idle_timeout),
        replay=replay,
        force=force,
    )

    async def work(manager: Manager) -> SavedStream:
        retrying = RetryingManager(manager, retries=retries, say=progress_log(json))
        with shown(_backup_begins, "Received", bar=progress, quiet=json) as step:
            return await save_stream(retrying, stream, target, options, step)

    with suggesting(session, stream):
        done = session.run(work)
    if json:
        output.emit_json(done)
        return
    output.note(
        f"\nBackup done: received {format_size(done.archive_bytes)} of compressed data"
        f' in {plural(done.chunks, "chunk")} for stream "{safe(stream)}" in {duration(done.elapsed)},'
        f" {format_size(done.bytes)} uncompressed"
    )


def restore(
    session: Session,
    words: Annotated[list[str], Argument(metavar="[STREAM] SOURCE", help="a new name for the stream, and the backup")],
    progress: Progress = True,
    config: ConfigFile = None,
    subjects: Annotated[
        list[str] | None,
        Option("--subjects", metavar="SUBJECT[,SUBJECT]", help="subjects of the restored stream"),
    ] = None,
    cluster: Cluster = "",
    tag: Tags = None,
    replicas: Replicas = 0,
    on_existing: OnExisting = "fail",
    idle_timeout: IdleTimeout = IDLE_TIMEOUT,
    retries: Retries = RETRIES,
    force: Force = False,
    json: Json = False,
) -> None:
    """Restore a stream from a backup of any form, under its own or another name.

    A failed restore leaves no stream. A stream that is replaced is saved first and put back if the restore
    fails; between its removal and the end of the restore there is no stream of that name.

    Under another name, an archive of version 1 is rewritten first, because each of its records is bound to the
    stream's name; one of version 2 is sent as it is.
    """
    from natsctl.client.backup.restore import RestoreOptions

    if len(words) > 2:
        raise UsageError(f"unexpected argument {words[2]!r}")
    stream, source = ("", words[0]) if len(words) == 1 else (words[0], words[1])
    options = RestoreOptions(
        stream=stream,
        config=load_overrides(config),
        subjects=tuple(word for words in subjects or () for word in words.replace(",", " ").split()),
        cluster=cluster,
        tags=tuple(tag or ()),
        replicas=replicas,
        on_existing=read_existing(on_existing),
        idle_s=read_idle(idle_timeout),
    )
    if not _may_replace(session, Path(source), options, force):
        return
    done = _restored(session, Path(source), options, retries, bar=progress, json=json)
    _show_restored(done, json)


def _may_replace(session: Session, source: Path, options: RestoreOptions, force: bool) -> bool:
    """Return whether to continue: a stream to be replaced is shown first, and the user must type its name."""
    from natsctl.client.backup.restore import OnExisting, replaced_by

    if options.on_existing is OnExisting.REPLACE:
        check_consent(session, f"replace {named('Stream', [options.stream] if options.stream else [])}", force)
    there = session.run(lambda manager: replaced_by(manager, source, options))
    if there is None:
        return True
    info = there.value
    held = f"{plural(info.state.messages, 'message')}, {format_size(info.state.bytes)}"
    question = f"replace Stream {info.config.name} ({held})"
    return confirmed(session, question, force, typed=info.config.name)


def _restored(
    session: Session, source: Path, options: RestoreOptions, retries: int, *, bar: bool, json: bool
) -> Restored:
    from natsctl.client.backup.restore import restore_stream
    from natsctl.client.backup.transfer import RetryingManager

    def begins(done: Transferred) -> str:
        return f'Starting restore of Stream "{safe(done.stream)}" from file "{safe(str(source))}"'

    async def work(manager: Manager) -> Restored:
        retrying = RetryingManager(manager, retries=retries, say=progress_log(json))
        with shown(begins, "Sent", bar=bar, quiet=json) as step:
            return await restore_stream(retrying, source, options, step)

    return session.run(work)


def _show_restored(done: Restored, json: bool) -> None:
    for text in done.warnings:
        output.note(safe(text))
    seconds = round(done.progress.elapsed_s)
    took = f"{seconds}s" if seconds < 60 else duration(seconds * 1_000_000_000)
    what: Any = {
        "restored": f'\nRestored stream "{safe(done.stream)}" in {took}\n',
        "replaced": f'\nReplaced stream "{safe(done.stream)}" in {took}\n',
        "skipped": f"Stream {safe(done.stream)} exists and was kept as it is\n",
    }
    show_info(done.answer, json, what[done.action])


def _backup_begins(done: Transferred) -> str:
    again = f" (attempt {done.attempt})" if done.attempt > 1 else ""
    return f'Starting backup of Stream "{safe(done.stream)}" with {format_size(done.total_bytes)}{again}'


def _read_since(text: str) -> str:
    return format_time(read_moment(text, back=True))


FromBackup = Annotated[
    Path | None,
    Option("--backup", metavar="PATH", help="read a backup at or below this path instead of a server"),
]


class ExportRange(NamedTuple):
    """Range of messages: a bundle of flags."""

    subject: Annotated[
        str,
        Option("--subject", metavar="SUBJECT[,SUBJECT]", help="only messages on these subjects"),
    ] = ""
    since: Annotated[
        str,
        Option(
            "--since", metavar="TIME", help="only messages stored since this time, or this long ago", read=_read_since
        ),
    ] = ""
    start_seq: Annotated[int | None, Option("--start-seq", metavar="SEQ", help="the first sequence", min=1)] = None
    end_seq: Annotated[
        int | None,
        Option("--end-seq", metavar="SEQ", help="the last sequence, itself included", min=1),
    ] = None

    def options(self, stream: str) -> dict[str, str]:
        if self.since and self.start_seq:
            raise UsageError("--since and --start-seq exclude each other")
        if self.start_seq and self.end_seq and self.start_seq > self.end_seq:
            raise UsageError(f"--start-seq {self.start_seq} is after --end-seq {self.end_seq}")
        found = {"subject": self.subject, "startingTimestamp": self.since}
        for name, seq in (("startingOffsets", self.start_seq), ("endingOffsets", self.end_seq)):
            found[name] = json_text.dumps({stream: seq}) if seq else ""
        if self.since:
            found["startingOffsetsByTimestampStrategy"] = "latest"
        return {name: value for name, value in found.items() if value}


class ExportForm(NamedTuple):
    """Form of the export: a bundle of flags."""

    format: Annotated[
        str,
        Option(
            "--format",
            metavar="parquet|json|csv|delta",
            help="[by the target's ending, else parquet]",
        ),
    ] = ""
    partition_by: Annotated[
        str,
        Option("--partition-by", metavar="date|subject", help="one folder for each in the target"),
    ] = ""
    incremental: Annotated[
        bool,
        Option("--incremental", help="add the messages since the last run, each exactly once"),
    ] = False
    ignore_loss: Annotated[
        bool,
        Option("--ignore-data-loss", help="--incremental: continue although messages are missing"),
    ] = False
    force: Annotated[bool, Option("--force", "-f", "--yes", help="replace an existing export")] = False

    def target(self, path: str) -> FileTarget:
        from natsctl.spark.files.file_export import target_of

        return target_of(path, self.format, self.partition_by, incremental=self.incremental, force=self.force)


def export(
    session: Session,
    spark: SparkFlags,
    part: ExportRange,
    wanted: ExportForm,
    stream: Annotated[str, Argument(metavar="STREAM", help="name of the stream")],
    target: Annotated[
        str, Argument(metavar="TARGET", help="a file such as out.parquet, a folder, or a URL that Spark knows")
    ],
    backup: FromBackup = None,
    json: Json = False,
) -> None:
    """Write the messages of a stream to files: Parquet, JSON lines, CSV or Delta.

    A TARGET with the ending of a format (.parquet, .jsonl, .json, .csv, the last three also with .gz) is one file, in
    the order of sequences; any other is a folder of files, written by all cores. Subject, sequence, time, headers and
    payload are kept for `stream import`. In JSON and CSV a payload that is not UTF-8 is written in base64.
    """
    where = wanted.target(target)
    if wanted.incremental and (backup or part.end_seq):
        raise UsageError("--incremental excludes --backup and --end-seq")
    strict = wanted.incremental and not wanted.ignore_loss
    chosen = {**part.options(stream), "failOnDataLoss": "true" if strict else "false"}
    if backup:  # which ends without a message that is late enough
        chosen.pop("startingOffsetsByTimestampStrategy", None)
    tables = checked_tables(session, stream, backup)
    if session.dry_run:
        raise DryRunError(effect={"path": where.path, "format": where.format.name, "one_file": where.is_file})
    if where.incremental:
        from natsctl.spark.files.file_export import Note, prepare

        chosen.setdefault("startingOffsets", "earliest")
        note = Note(stream=stream, subject=part.subject, format=where.format.name, partition_by=where.partition_by)
        prepare(where, note)

    def work(opened: SparkSession, options: dict[str, str]) -> Exported:
        from natsctl.spark.files.file_export import export as export_all
        from natsctl.spark.files.file_export import export_more

        run = export_more if where.incremental else export_all
        return run(opened, {**tables.options(options, stream), **chosen}, stream, where)

    from natsctl.cli.spark_work import run_on_spark
    from natsctl.spark.files.direct_export import is_direct

    what, state = f"Exporting Stream {stream}", tables.state(stream)
    if not any(spark) and tables.on_server and is_direct(where, state):
        exported = _exported_direct(session, {**tables.options({}, stream), **chosen}, stream, where)
    else:
        messages = int(state.get("messages") or 0)
        exported = run_on_spark(session, spark, work, what=what, needs_server=tables.on_server, messages=messages)
    _show_exported(exported, where.incremental, json)


def _exported_direct(session: Session, chosen: dict[str, str], stream: str, target: FileTarget) -> Exported:
    from natsctl.cli.spark_work import server_options, spark_failures
    from natsctl.spark.files.direct_export import export_direct

    what = f"Exporting Stream {stream}"
    with spark_failures(session), progress(what, None, "messages", quiet=session.json) as tracker:
        return export_direct({**server_options(session), **chosen}, stream, target, tracker.at)


def checked_tables(session: Session, stream: str, backup: Path | None) -> Tables:
    """Return the tables with the stream; raises if it does not exist, before Spark starts."""
    from natsctl.cli.sql import BackupTables, ServerTables

    if backup is not None:
        tables = BackupTables(backup)
        tables.check(stream)
        return tables
    live_stream(session, stream)
    return ServerTables(session)


def _show_exported(done: Exported, incremental: bool, json: bool) -> None:
    if json:
        output.emit_json(done)
        return
    new = "new " if incremental else ""
    range_text = f", {count(done.first_seq)} to {count(done.last_seq)}," if done.first_seq else ""
    output.emit(
        f"Exported {plural(done.messages, f'{new}message')}{range_text} of Stream {safe(done.stream)}"
        f" to {safe(done.path)} as {done.format}"
    )


class Imported(Model, kw_only=True):
    """Number of messages that were read, that were added to the stream, and that it already had.

    `left_out` counts, by header that a server obeys, the messages stored without it.
    """

    stream: str
    messages: int
    stored: int
    known: int
    left_out: dict[str, int]


def load(
    session: Session,
    spark: SparkFlags,
    stream: Annotated[str, Argument(metavar="STREAM", help="name of the stream")],
    source: Annotated[str, Argument(metavar="SOURCE", help="a file or folder, or a URL that Spark knows")],
    format: Annotated[
        str,
        Option("--format", metavar="parquet|json|csv|delta", help="[by the endings of files]"),
    ] = "",
    subject: Annotated[
        str,
        Option("--subject", metavar="SUBJECT", help="for all messages, instead of their own"),
    ] = "",
    as_json: Annotated[
        bool,
        Option("--row-as-json", help="the payload is the row as JSON"),
    ] = False,
    ids: Annotated[
        str,
        Option(
            "--ids", metavar="auto|seq|own", help="message ids: own (or STREAM:SEQ without one), STREAM:SEQ, own only"
        ),
    ] = "auto",
    writers: Annotated[
        int, Option("--writers", metavar="N", help="messages in flight; order is kept within subjects", min=1)
    ] = 1,
    json: Json = False,
) -> None:
    """Store what `stream export` wrote, or rows of other tables, in a stream.

    Messages keep their subjects, headers, payloads and order. Each gets a message id as its last header: its own, or
    its former stream and sequence (ORDERS:17), so that a repeated import stores nothing twice within the stream's
    duplicate window. Headers that servers act on, such as Nats-Expected-… and Nats-Rollup, are left out and counted;
    Nats-TTL and Nats-Schedule only if the stream does not allow them. With --dry-run the rows are counted.
    """
    from natsctl.spark.files import file_import
    from natsctl.spark.files.direct_import import direct_import
    from natsctl.spark.files.message_columns import IDS, left_out

    if ids not in IDS:
        raise UsageError(f"--ids: expected one of {', '.join(IDS)}, not {ids!r}")
    what = file_import.source_of(source, format, subject, as_json=as_json)
    before = live_stream(session, stream).value
    _check_open(before.config)
    omitted = left_out(before.config)

    def stored() -> int:
        state = session.run(lambda manager: manager.stream_info(stream)).value.state
        return state.last_seq - before.state.last_seq

    direct = direct_import(what, before.config.subjects, omitted)
    measured = StoredRows(stored)

    def work(opened: SparkSession, options: dict[str, str]) -> Content:
        with file_import.read_once(file_import.read_rows(opened, what), what.format) as rows:
            content = direct.content if direct else file_import.examine(rows, before.config.subjects, omitted)
            file_import.check_subjects(stream, before.config.subjects, content)
            if session.dry_run:
                raise DryRunError(effect=_effect(content, file_import.subjects_of(rows)))
            measured.total = content.messages
            made = file_import.messages(rows, ids, writers, omitted, has_repeated_ids=content.has_repeated_ids)
            file_import.store(made, options, ids, _name(stream, source))
        return content

    needs_spark = any(spark) or writers > 1 or (ids == "auto" and direct and direct.content.has_repeated_ids)
    if direct is not None and direct.is_in_order and not needs_spark:
        _publish_direct(session, direct, before.config, ids, _name(stream, source))
        content = direct.content
    else:
        from natsctl.cli.spark_work import run_on_spark

        content = run_on_spark(session, spark, work, what=f"Importing into Stream {stream}", measured=measured)
    _show_imported(stream, content, stored(), json)


def _publish_direct(session: Session, direct: DirectImport, config: StreamConfig, ids: str, name: str) -> None:
    """Publish the messages of files without Spark. Raises UsageError for subjects that the stream does not take."""
    from natsctl.cli.spark_work import server_options, spark_failures
    from natsctl.spark.files.file_import import check_subjects

    check_subjects(config.name, config.subjects, direct.content)
    if session.dry_run:
        raise DryRunError(effect=_effect(direct.content, direct.subjects))
    what, total = f"Importing into Stream {config.name}", direct.content.messages
    with spark_failures(session), progress(what, total, "messages", quiet=session.json) as tracker:
        direct.publish(server_options(session), ids, name, tracker.at)


class StoredRows:
    """Number of stored rows of `total`; unknown before the first one."""

    def __init__(self, stored: Callable[[], int]) -> None:
        self._stored = stored
        self._done = self.total = 0

    def __call__(self) -> Measured | None:
        """Return the server's last answer; a failed request does not end an import."""
        from natsctl.cli.spark_work import Measured

        if self.total:
            with suppress(NatsctlError):
                self._done = self._stored()
        return Measured("messages", min(self._done, self.total), self.total) if self._done > 0 else None


def _check_open(config: StreamConfig) -> None:
    if config.mirror is not None or config.sealed:
        why = "is a mirror" if config.mirror is not None else "is sealed"
        raise UsageError(f"Stream {config.name} {why}: it accepts no messages")
    if config.allow_msg_counter:
        raise UsageError(
            f"Stream {config.name} is a counter: it accepts increments only", hint="natsctl counter increment"
        )


def _name(stream: str, source: str) -> str:
    """Return the prefix of message ids for rows without one, the same for the same files."""
    return f"import-{hashlib.blake2b(f'{stream} {source}'.encode(), digest_size=8).hexdigest()}"


def _effect(content: Content, subjects: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "messages": content.messages,
        "bytes": content.bytes,
        "subjects": subjects,
        "left_out": content.left_out,
    }
    if content.first_seq is not None:
        found |= {"first_seq": content.first_seq, "last_seq": content.last_seq}
    return found


def _show_imported(stream: str, content: Content, stored: int, json: bool) -> None:
    """Show the numbers of messages that were read and added; other publishers may have added some."""
    known = max(content.messages - stored, 0)
    if json:
        counts = {"messages": content.messages, "stored": stored, "known": known}
        output.emit_json({"stream": stream, **counts, "left_out": content.left_out})
        return
    duplicates = f", {count(known)} which it already had" if known else ""
    output.emit(f"Imported {plural(content.messages, 'message')} into Stream {safe(stream)}{duplicates}")
    if content.left_out:
        named = ", ".join(f"{name} of {plural(number, 'message')}" for name, number in content.left_out.items())
        output.note(f"left out headers that the server would act on: {named}")
