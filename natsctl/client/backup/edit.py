"""A backup made of another one: some of its messages, another name, the other format."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from natsctl import __version__
from natsctl.api.errors import UsageError
from natsctl.api.subjects import is_valid_name
from natsctl.api.units import plural
from natsctl.client.backup.contents import OnRead, unseen
from natsctl.client.backup.layout import is_single_file
from natsctl.client.backup.manifest import FORMAT, MadeOn, Manifest
from natsctl.client.backup.opened import OpenBackup, open_backup
from natsctl.client.backup.pick import Choice, Pick, Picked, choose
from natsctl.client.backup.rewrite import rewrite
from natsctl.client.backup.save import SavedStream
from natsctl.client.backup.target import BackupWriter, check_free

_COPY_BYTES = 1 << 20


class EditedBackup(SavedStream):
    """A backup made of another one, with the numbers of what was read and kept.

    `warnings` say which limits of the stream remove messages at the restore.
    """

    picked: Picked
    consumers_dropped: int
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class Edit:
    """Changes that make one backup of another."""

    name: str = ""
    pick: Pick = field(default_factory=Pick)
    last_per_subject: int = 0
    kv_compact: bool = False
    renumber: bool = False
    version: int = 2
    consumers: bool = True

    @property
    def keeps_all(self) -> bool:
        """Return whether no message is left out."""
        return self.pick == Pick() and not self.last_per_subject and not self.kv_compact

    def options(self) -> list[str]:
        """Return what was asked for, as backup.json lists it."""
        said = self.pick.options()
        said += [f"last-per-subject={self.last_per_subject}"] if self.last_per_subject else []
        said += [name for name, asked in (("kv-compact", self.kv_compact), ("renumber", self.renumber)) if asked]
        return said


def edit_backup(
    source: Path,
    target: Path,
    edit: Edit = Edit(),
    *,
    replace: bool = False,
    dry_run: bool = False,
    on_read: OnRead = unseen,
) -> EditedBackup:
    """Write the picked messages to a new backup, whose configuration is that of the other, and return what it holds.

    Raises UsageError, StorageError; nothing is left then. In a dry run nothing is written.
    """
    begun = time.monotonic()
    check_free(target, is_single_file(target), replace)
    with open_backup(source) as backup, tempfile.TemporaryFile() as data:
        config = {**backup.config, "name": edit.name or backup.stream}
        _check(edit, config)
        if edit.renumber:
            config.pop("first_seq", None)
        choice = choose(
            backup,
            edit.pick,
            last_per_subject=edit.last_per_subject,
            kv_compact=edit.kv_compact,
            since_ns=time.time_ns() - age if (age := int(config.get("max_age") or 0)) > 0 else 0,
        )
        consumers = edit.consumers and not edit.renumber
        keep = None if edit.keeps_all else choice
        state = rewrite(
            backup, data, config, edit.version, keep=keep, consumers=consumers, renumber=edit.renumber, on_read=on_read
        )
        had = int(backup.state.get("consumer_count") or 0)
        size = 0
        if not dry_run:
            manifest = _manifest(backup, config, state, edit.version, consumers)
            size = _write(target, data, config, state, manifest, replace, _blocks(backup, edit))
    return EditedBackup(
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
        archive=edit.version,
        method="rewritten",
        attempts=1,
        picked=choice.report,
        consumers_dropped=max(0, had - state["consumer_count"]),
        warnings=_warnings(config, state, choice, edit),
    )


def _check(edit: Edit, config: dict[str, Any]) -> None:
    """Raise UsageError where no such backup can be made."""
    if not is_valid_name(config["name"]):
        raise UsageError(f"{config['name']!r} is not a valid stream name")
    if edit.version == 1 and config.get("storage") == "memory":
        raise UsageError("a stream in memory has no archive of version 1", hint="leave --archive out")


def _blocks(backup: OpenBackup, edit: Edit) -> dict[str, Any]:
    """Return what backup.json says of the edit, as the `nats` tool writes it, and of a capture that it was made of."""
    digest = next(one.sha256 for one in backup.sums() if one.name == backup.data.name)
    said = {"version": f"natsctl {__version__}", "options": edit.options(), "source_digest": f"sha256:{digest}"}
    captured = backup.block("source")
    return {"edit": said, **({"source": captured} if captured else {})}


def _warnings(config: dict[str, Any], state: dict[str, Any], choice: Choice, edit: Edit) -> list[str]:
    """Return what the stream's limits take away when it is restored."""

    def limit(name: str) -> int:
        return int(config.get(name) or 0)

    kept, said = choice.report.kept, []
    if 0 < limit("max_msgs") < kept:
        said.append(f"{plural(kept, 'message')} kept, max_msgs is {limit('max_msgs'):,}: a restore drops the oldest")
    if 0 < limit("max_bytes") < state["bytes"]:
        said.append(f"{plural(state['bytes'], 'byte')} kept, max_bytes is {limit('max_bytes'):,}: a restore drops some")
    if choice.older:
        said.append(f"{plural(choice.older, 'message')} kept that max_age no longer allows: a restore drops them")
    if 0 < limit("max_msgs_per_subject") < edit.last_per_subject:
        said.append(f"a restore keeps {limit('max_msgs_per_subject'):,} of each subject: max_msgs_per_subject")
    return said


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
    target: Path,
    data: IO[bytes],
    config: dict[str, Any],
    state: dict[str, Any],
    manifest: Manifest,
    replace: bool,
    more: dict[str, Any],
) -> int:
    """Put the data under its name and return its size."""
    writer = BackupWriter(target, replace=replace)
    try:
        data.seek(0)
        while piece := data.read(_COPY_BYTES):
            writer.write(piece)
        writer.finish(config, state, manifest, more)
    finally:
        writer.discard()
    return writer.data_bytes
