"""A backup made of another one: some of its messages, another name, the other format."""

from __future__ import annotations

import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from natsctl import __version__
from natsctl.api.errors import UsageError
from natsctl.api.subjects import is_valid_name
from natsctl.client.backup.contents import OnRead, unseen
from natsctl.client.backup.layout import is_single_file
from natsctl.client.backup.manifest import FORMAT, MadeOn, Manifest
from natsctl.client.backup.opened import OpenBackup, open_backup
from natsctl.client.backup.pick import Pick
from natsctl.client.backup.rewrite import rewrite
from natsctl.client.backup.save import SavedStream
from natsctl.client.backup.target import BackupWriter, check_free
from natsctl.client.preview import Previewed

_COPY_BYTES = 1 << 20


def edit_backup(
    source: Path,
    target: Path,
    *,
    name: str = "",
    pick: Pick = Pick(),
    version: int = 2,
    consumers: bool = True,
    replace: bool = False,
    dry_run: bool = False,
    on_read: OnRead = unseen,
) -> SavedStream:
    """Write the picked messages to a new backup, whose configuration is that of the other.

    Raises UsageError, StorageError; nothing is left then. In a dry run raises Previewed with what would be kept.
    """
    begun = time.monotonic()
    check_free(target, is_single_file(target), replace)
    with open_backup(source) as backup, tempfile.TemporaryFile() as data:
        config = {**backup.config, "name": name or backup.stream}
        if not is_valid_name(config["name"]):
            raise UsageError(f"{config['name']!r} is no name for a stream")
        if version == 1 and config.get("storage") == "memory":
            raise UsageError("a stream in memory has no archive of version 1", hint="leave --archive out")
        keep = None if pick == Pick() else pick
        state = rewrite(backup, data, config, version, keep=keep, consumers=consumers, on_read=on_read)
        if dry_run:
            kept = {"target": str(target), "messages": state["messages"], "of_messages": backup.state.get("messages")}
            raise Previewed(effect=kept)
        size = _write(target, data, config, state, _manifest(backup, config, state, version, consumers), replace)
    return SavedStream(
        stream=config["name"],
        target=str(target),
        bytes=state["bytes"],
        archive_bytes=size,
        chunks=0,
        elapsed=int((time.monotonic() - begun) * 1e9),
        messages=state["messages"],
        first_seq=state["first_seq"],
        last_seq=state["last_seq"],
        consumers=state["consumer_count"],
        archive=version,
        method="rewritten",
        attempts=1,
    )


def _manifest(
    backup: OpenBackup, config: dict[str, Any], state: dict[str, Any], version: int, consumers: bool
) -> Manifest:
    return Manifest(
        format=FORMAT,
        tool=f"natsctl {__version__}",
        created=datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        stream=config["name"],
        server=backup.manifest.server if backup.manifest is not None else MadeOn(),
        method="rewritten",
        archive=version,
        consumers=consumers,
        state=state,
    )


def _write(
    target: Path, data: IO[bytes], config: dict[str, Any], state: dict[str, Any], manifest: Manifest, replace: bool
) -> int:
    """Put the data under its name; the answer is its size."""
    writer = BackupWriter(target, replace=replace)
    try:
        data.seek(0)
        while piece := data.read(_COPY_BYTES):
            writer.write(piece)
        writer.finish(config, state, manifest)
    finally:
        writer.discard()
    return writer.data_bytes
