"""`stream backup` and `stream restore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.errors import UsageError
from natsctl.api.units import format_size, plural
from natsctl.cli import output
from natsctl.cli.backup import options as flags
from natsctl.cli.backup.progress import shown
from natsctl.cli.consent import check_consent, confirmed, named
from natsctl.cli.names import suggesting
from natsctl.cli.options import Config, Force, Json, Progress, session_of
from natsctl.cli.render.text import duration, safe
from natsctl.cli.stream.config import show_info

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.client.backup.progress import Progress as Transferred
    from natsctl.client.backup.restore import Restored, RestoreOptions
    from natsctl.client.backup.save import SavedStream
    from natsctl.client.manager import Manager


def backup(
    ctx: typer.Context,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="the stream")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="directory, or a file such as ORDERS.tgz")],
    progress: Progress = True,
    check: flags.Check = False,
    consumers: flags.Consumers = True,
    chunk_size: flags.ChunkSize = None,
    window_size: flags.WindowSize = None,
    idle_timeout: flags.IdleTimeout = flags.IDLE_TIMEOUT,
    retries: flags.Retries = flags.RETRIES,
    replay: Annotated[
        bool, typer.Option("--replay", help="read message by message, as for servers without snapshots")
    ] = False,
    force: flags.ForceReplace = False,
    json: Json = False,
) -> None:
    """Back up a stream: configuration, consumers, state and messages, with a manifest and checksums.

    The backup appears under its name when it is whole; a broken connection begins it again. Streams in memory are
    saved too.
    """
    from natsctl.client.backup.attempts import Lifeline
    from natsctl.client.backup.save import SaveOptions, save_stream

    session = session_of(ctx)
    options = SaveOptions(
        consumers=consumers,
        check=check,
        chunk_size=flags.read_size("--chunk-size", chunk_size),
        window_size=flags.read_size("--window-size", window_size),
        idle_s=flags.read_idle(idle_timeout),
        replay=replay,
        force=force,
    )

    async def work(manager: Manager) -> SavedStream:
        lifeline = Lifeline(manager, retries=retries, say=flags.sayer(json))
        with shown(_backup_begins, "Received", bar=progress, quiet=json) as step:
            return await save_stream(lifeline, stream, target, options, step)

    with suggesting(session, stream):
        done = session.run(work)
    if json:
        from msgspec import to_builtins

        output.emit_json(to_builtins(done))
        return
    output.note(
        f"\nBackup done: received {format_size(done.archive_bytes)} of compressed data"
        f' in {plural(done.chunks, "chunk")} for stream "{safe(stream)}" in {duration(done.elapsed)},'
        f" {format_size(done.bytes)} uncompressed"
    )


def restore(
    ctx: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="[STREAM] SOURCE", help="the backup, and a new name for the stream")
    ],
    progress: Progress = True,
    config: Config = None,
    subjects: Annotated[
        list[str] | None,
        typer.Option(
            "--subjects", metavar="SUBJECT[,SUBJECT]", help="subjects of the restored stream", show_default=False
        ),
    ] = None,
    cluster: flags.Cluster = "",
    tag: flags.Tags = None,
    replicas: flags.Replicas = 0,
    on_existing: flags.OnExisting = "fail",
    idle_timeout: flags.IdleTimeout = flags.IDLE_TIMEOUT,
    retries: flags.Retries = flags.RETRIES,
    force: Force = False,
    json: Json = False,
) -> None:
    """Restore a stream from a backup of any form, under its own or another name.

    A restore that fails leaves nothing behind. A stream that is replaced is saved first and put back if the restore
    fails; between its removal and the end of the restore there is no stream of that name.

    Under another name, an archive of version 1 is written anew first, because each of its records is bound to the
    stream's name; one of version 2 is sent as it is.
    """
    from natsctl.client.backup.restore import RestoreOptions

    if len(words) > 2:
        raise UsageError(f"unexpected argument {words[2]!r}")
    stream, source = ("", words[0]) if len(words) == 1 else (words[0], words[1])
    options = RestoreOptions(
        stream=stream,
        config=flags.load_overrides(config),
        subjects=tuple(word for words in subjects or () for word in words.replace(",", " ").split()),
        cluster=cluster,
        tags=tuple(tag or ()),
        replicas=replicas,
        on_existing=flags.read_existing(on_existing),
        idle_s=flags.read_idle(idle_timeout),
    )
    session = session_of(ctx)
    if not _may_replace(session, Path(source), options, force):
        return
    done = _restored(session, Path(source), options, retries, bar=progress, json=json)
    _show_restored(done, json)


def _may_replace(session: Session, source: Path, options: RestoreOptions, force: bool) -> bool:
    """Whether to go on: a stream that would be replaced is shown first, and its name asked for."""
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
    from natsctl.client.backup.attempts import Lifeline
    from natsctl.client.backup.restore import restore_stream

    def begins(done: Transferred) -> str:
        return f'Starting restore of Stream "{safe(done.stream)}" from file "{safe(str(source))}"'

    async def work(manager: Manager) -> Restored:
        lifeline = Lifeline(manager, retries=retries, say=flags.sayer(json))
        with shown(begins, "Sent", bar=bar, quiet=json) as step:
            return await restore_stream(lifeline, source, options, step)

    return session.run(work)


def _show_restored(done: Restored, json: bool) -> None:
    """Show the stream, and on stderr, whoever reads, in what it differs from its backup."""
    for text in done.warnings:
        output.note(safe(text))
    seconds = round(done.progress.elapsed_s)
    took = f"{seconds}s" if seconds < 60 else duration(seconds * 1_000_000_000)
    what: Any = {
        "restored": f'\nRestored stream "{safe(done.stream)}" in {took}\n',
        "replaced": f'\nReplaced stream "{safe(done.stream)}" in {took}\n',
        "skipped": f"Stream {safe(done.stream)} exists and was left alone\n",
    }
    show_info(done.answer, json, what[done.action])


def _backup_begins(done: Transferred) -> str:
    again = f" (attempt {done.attempt})" if done.attempt > 1 else ""
    return f'Starting backup of Stream "{safe(done.stream)}" with {format_size(done.total_bytes)}{again}'
