"""`stream backup` and `stream restore`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.errors import UsageError
from natsctl.api.units import format_size, parse_size
from natsctl.cli import output
from natsctl.cli.backup.progress import shown
from natsctl.cli.names import suggesting
from natsctl.cli.options import Config, Json, Progress, session_of
from natsctl.cli.render.values import duration, safe
from natsctl.cli.stream.config import show_info

if TYPE_CHECKING:
    from natsctl.client.answer import Answer
    from natsctl.client.backup import Progress as Transferred
    from natsctl.client.manager import Manager

Tags = Annotated[
    list[str] | None, typer.Option("--tag", metavar="TAG", help="place on servers with this tag", show_default=False)
]


def backup(
    ctx: typer.Context,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="the stream")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="directory, or a file such as ORDERS.tgz")],
    progress: Progress = True,
    check: Annotated[bool, typer.Option("--check", help="let the server check its data first")] = False,
    consumers: Annotated[bool, typer.Option("--consumers/--no-consumers", help="with consumers")] = True,
    chunk_size: Annotated[
        str | None, typer.Option("--chunk-size", metavar="SIZE", help="size of the pieces that are sent")
    ] = None,
    window_size: Annotated[
        str | None, typer.Option("--window-size", metavar="SIZE", help="most bytes that are on their way")
    ] = None,
    json: Json = False,
) -> None:
    """Back up a stream: configuration, consumers, state and messages."""
    from natsctl.client.backup import backup as run_backup

    session = session_of(ctx)
    chunk, window = _size("--chunk-size", chunk_size), _size("--window-size", window_size)

    async def work(manager: Manager) -> Transferred:
        with shown(_backup_begins, "Received", bar=progress, quiet=json) as step:
            return await run_backup(
                manager,
                stream,
                target,
                consumers=consumers,
                check=check,
                chunk_size=chunk,
                window_size=window,
                on_progress=step,
            )

    with suggesting(session, stream):
        done = session.run(work)
    if json:
        output.emit_json(
            {
                "stream": stream,
                "target": str(target),
                "bytes": done.total_bytes,
                "archive_bytes": done.archive_bytes,
                "chunks": done.chunks,
                "elapsed": int(done.elapsed_s * 1e9),
            }
        )
        return
    output.note(
        f"\nReceived {format_size(done.archive_bytes)} bytes of compressed data in {done.chunks:,} chunks"
        f' for stream "{stream}" in {duration(int(done.elapsed_s * 1e9))}, {format_size(done.total_bytes)} uncompressed'
    )


def restore(
    ctx: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="[STREAM] SOURCE", help="the backup, and the stream that it must hold")
    ],
    progress: Progress = True,
    config: Config = None,
    cluster: Annotated[str, typer.Option("--cluster", metavar="NAME", help="place in this cluster")] = "",
    tag: Tags = None,
    replicas: Annotated[int, typer.Option("--replicas", metavar="N", help="number of copies", min=0)] = 0,
    json: Json = False,
) -> None:
    """Restore a stream from a backup, under the name that it had."""
    from natsctl.client.backup import restore as run_restore

    if len(words) > 2:
        raise UsageError(f"unexpected argument {words[2]!r}")
    stream, source = ("", words[0]) if len(words) == 1 else (words[0], words[1])
    path = Path(source)
    changed = _changed(path, config, cluster, tag or [], replicas)
    started_s = time.monotonic()

    def begins(done: Transferred) -> str:
        return f'Starting restore of Stream "{safe(done.stream)}" from file "{source}"'

    async def work(manager: Manager) -> Answer[Any]:
        with shown(begins, "Sent", bar=progress, quiet=json) as step:
            return await run_restore(manager, path, stream=stream, config=changed, on_progress=step)

    answer = session_of(ctx).run(work)
    name = answer.raw.get("config", {}).get("name", stream)
    show_info(answer, json, f'\nRestored stream "{name}" in {duration(int((time.monotonic() - started_s) * 1e9))}\n')


def _backup_begins(done: Transferred) -> str:
    return f'Starting backup of Stream "{safe(done.stream)}" with {format_size(done.total_bytes)}'


def _size(flag: str, text: str | None) -> int:
    if text is None:
        return 0
    try:
        return max(0, parse_size(text))
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error


def _changed(source: Path, config: str | None, cluster: str, tags: list[str], replicas: int) -> dict[str, Any] | None:
    """The configuration to restore with, None for the one in the backup."""
    if not (config or cluster or tags or replicas):
        return None
    from natsctl.api.stream import StreamConfig
    from natsctl.cli.documents import load_config
    from natsctl.client.archive import open_archive

    with open_archive(source) as archive:
        wanted = load_config(config, StreamConfig) if config else dict(archive.config)
    placement = {**(wanted.get("placement") or {})}
    if cluster:
        placement["cluster"] = cluster
    if tags:
        placement["tags"] = tags
    if placement:
        wanted["placement"] = placement
    if replicas:
        wanted["num_replicas"] = replicas
    return wanted
