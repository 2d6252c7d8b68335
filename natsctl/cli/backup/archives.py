"""Backups read, checked and edited without a server: `natsctl backup ls`, `info`, `cat`, `verify` and `edit`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import to_builtins

from natsctl.api import headers
from natsctl.api.errors import ExitCode, NatsctlError, StorageError, UsageError
from natsctl.api.requests import StoredMsg
from natsctl.api.times import format_time
from natsctl.cli.backup.message_filters import BOUNDS, CONTENT, PLACE, selection_of
from natsctl.cli.backup.transfer_flags import Consumers, ForceReplace, Source, Top
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Given, Json, Names, Progress, Raw, flagged
from natsctl.cli.framework.live import progress as shown
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.session import Session
from natsctl.cli.render.backup import (
    render_complete,
    render_edit,
    render_found,
    render_info,
    render_inspection,
    render_verdicts,
    render_verdicts_line,
)
from natsctl.cli.render.message import render_headers
from natsctl.cli.render.streams import render_item, render_subjects
from natsctl.cli.render.text import body_text, safe
from natsctl.client.backup.archives import read_messages
from natsctl.client.backup.discovery import Verdict, backup_info, candidates, find_backups, verify_account
from natsctl.client.backup.discovery import inspect as look_into
from natsctl.client.backup.discovery import verify as judge
from natsctl.client.backup.manifest import Document
from natsctl.client.backup.reader import open_backup
from natsctl.client.message import DryRunError

if TYPE_CHECKING:
    from natsctl.api.archive.archive import ArchivedMessage
    from natsctl.client.backup.selection import EditedBackup


class Verdicts(Document):
    """Results of the checks of all backups at a path; `missing` lists absent streams."""

    whole: bool
    backups: list[Verdict]
    missing: list[str]


def ls(
    folder: Annotated[Path, Argument(metavar="PATH", help="a folder, searched to any depth")] = Path(),
    check: Annotated[bool, Option("--check/--no-check", help="read the data to find damage")] = True,
    names: Names = False,
    json: Json = False,
) -> int:
    """List the backups below a folder (this one without PATH), of any form.

    Ends with 1 if one is damaged according to its checksum, or its content if it has no checksum. With --no-check or -n
    only descriptions are read.
    """
    found = find_backups(folder, read=check and not names)
    paths = [one.path for one in found] if names else None
    output.show_list(found, lambda: render_found(found), "No backups there", json=json, names=paths, say=output.note)
    return NatsctlError.exit_code if any(one.error for one in found) else ExitCode.DONE


SUBJECTS = 20


def inspect(
    path: Source,
    subjects: Annotated[
        int | None,
        Option("--subjects", metavar="N", help="subjects to list, 0 for all (20, with -j all)", min=0),
    ] = None,
    progress: Progress = True,
    json: Json = False,
) -> None:
    """Show a backup's configuration, state, consumers and subjects. Reads all of it; needs no server."""
    top = (0 if json else SUBJECTS) if subjects is None else subjects
    with open_backup(path) as backup, shown("Reading", backup.size, bar=progress, quiet=json) as tracker:
        found = look_into(backup, top=top, on_read=tracker.at)
    if json:
        output.emit_json(found)
        return
    output.show_page(render_inspection(found))


def info(
    path: Source,
    subjects: Annotated[bool, Option("--subjects", help="also every subject with its messages")] = False,
    progress: Progress = True,
    json: Json = False,
) -> None:
    """Show a backup's configuration, its numbers, and its origin, as the nats tool does.

    Reads all of it; needs no server. natsctl backup inspect shows more.
    """
    with open_backup(path) as backup, shown("Reading", backup.size, bar=progress, quiet=json) as tracker:
        found = backup_info(backup, subjects=subjects, on_read=tracker.at)
    if json:
        output.emit_json(found)
        return
    output.show_page(render_info(found, str(path)))
    if subjects:
        output.emit("")
        output.show_table(
            render_subjects(str(found.config.get("name", "")), sorted((found.subjects or {}).items()), output.width())
        )


@flagged(PLACE)
def cat(
    path: Source,
    given: Given,
    count: Annotated[int, Option("--count", metavar="N", help="at most N", min=0)] = 0,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Print the messages of a backup in order, with -j one document on a line. Needs no server."""
    pick = selection_of(given)
    left = count or -1
    with open_backup(path) as backup:
        for messages in read_messages(backup):
            for message in filter(pick, messages):
                if not left:
                    return
                left -= 1
                show_stored(backup.stream, message, raw, json)


def show_stored(stream: str, message: ArchivedMessage, raw: bool, json: bool) -> None:
    subject = message.subject.decode("utf-8", "backslashreplace")
    if json:
        output.emit_json_line(_document(message, subject))
    elif raw:
        output.emit_bytes(message.payload)
    else:
        output.emit(_text_of(stream, message, subject))


def _text_of(stream: str, message: ArchivedMessage, subject: str) -> str:
    item = render_item(stream, message.seq, subject, format_time(message.ts_ns), time.time_ns())
    pairs = render_headers([(_text(key), _text(value)) for key, value in headers.parse(message.header)])
    body = body_text(message.payload).removesuffix("\n")
    return "\n".join([item, *pairs, *([""] if pairs else []), body, ""])


def _document(message: ArchivedMessage, subject: str) -> dict[str, object]:
    stored = StoredMsg(
        subject=subject,
        seq=message.seq,
        hdrs=message.header or None,
        data=message.payload or None,
        time=format_time(message.ts_ns),
    )
    return dict(to_builtins(stored))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def verify(path: Top, progress: Progress = True, json: Json = False) -> int:
    """Check backups: checksums, archives to the end mark, and contents against their descriptions.

    Reads every byte; ends with 1 where anything is wrong. Needs no server.
    """

    paths = list(candidates(path)) if path.exists() else [path]
    if not paths:
        raise UsageError(f"no backup below {path}", hint="a directory with backup.json, a .tgz, or stream_*.json files")
    verdicts = _judge(paths, bar=progress, quiet=json)
    missing = verify_account(path, paths)
    whole = not missing and all(verdict.whole for verdict in verdicts)
    if json:
        output.emit_json({"whole": whole, "backups": verdicts, "missing": missing})
    else:
        _show_verify(verdicts, missing)
    return ExitCode.DONE if whole else NatsctlError.exit_code


def validate(
    path: Annotated[Path, Argument(metavar="PATH", help="the backup: a directory or a file")],
    progress: Progress = True,
) -> None:
    """Check one stream backup and print a line with its numbers, or end with 1 if it is not complete.

    Reads every byte; needs no server. natsctl backup verify checks many backups and shows the result of each.
    """
    if not path.exists():
        raise UsageError(f"there is no backup at {path}")
    verdict = _judge([path], bar=progress, quiet=False)[0]
    if not verdict.whole:
        raise StorageError("; ".join(check.detail for check in verdict.checks if not check.ok))
    output.emit(render_complete(verdict))


def _judge(paths: list[Path], *, bar: bool, quiet: bool) -> list[Verdict]:
    sizes = [_size(path) for path in paths]
    verdicts, before = [], 0
    with shown("Verifying", sum(sizes), bar=bar, quiet=quiet) as tracker:
        for path, size in zip(paths, sizes, strict=True):
            verdicts.append(judge(path, lambda done, before=before: tracker.at(before + done)))  # type: ignore[misc]  # a lambda's default has no place for its type
            before += size
            tracker.at(before)
    return verdicts


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(entry.stat().st_size for entry in path.iterdir() if entry.is_file())
    return path.stat().st_size if path.exists() else 0


def _show_verify(verdicts: list[Verdict], missing: list[str]) -> None:
    output.show_table(render_verdicts(verdicts))
    for text in missing:
        output.note(safe(text))
    output.note(render_verdicts_line(verdicts, missing))


@flagged((*PLACE, *CONTENT, *BOUNDS))
def edit(
    session: Session,
    given: Given,
    path: Source,
    target: Annotated[Path, Argument(metavar="TARGET", help="directory, or a file such as ORDERS.tgz")],
    name: Annotated[str, Option("--name", metavar="STREAM", help="another name")] = "",
    last_per_subject: Annotated[
        int | None,
        Option("--last-per-subject", metavar="N", help="the newest N of every subject"),
    ] = None,
    kv_compact: Annotated[
        bool, Option("--kv-compact", help="of a bucket the latest revision of each key, without removed keys")
    ] = False,
    renumber: Annotated[bool, Option("--renumber", help="number the messages from 1, and drop all consumers")] = False,
    archive: Annotated[
        int, Option("--archive", metavar="1|2", help="format to write: 1 can be read by servers before 2.15")
    ] = 2,
    consumers: Consumers = True,
    obfuscate: Annotated[
        bool, Option("--obfuscate", help="replace names by hashes and bodies by zeros, for a backup to share")
    ] = False,
    obfuscation_key: Annotated[
        Path | None, Option("--obfuscation-key", metavar="FILE", help="hash as with this key file of an earlier edit")
    ] = None,
    force: ForceReplace = False,
    progress: Progress = True,
    json: Json = False,
) -> None:
    """Make a new backup with some messages of another one, under its own or another name, in either format.

    The messages keep their sequences (but for --renumber) and times; the one that is read stays as it is. With
    --obfuscate names become hashes and bodies zeros; a file next to TARGET leads back to the names. Needs no server.
    """
    from natsctl.client.backup.selection import Edit, edit_backup

    if archive not in (1, 2):
        raise UsageError(f"--archive: expected 1 or 2, not {archive}")
    if last_per_subject is not None and last_per_subject < 1:
        raise UsageError(f"--last-per-subject: expected 1 or more, not {last_per_subject}")
    if last_per_subject and kv_compact:
        raise UsageError("--kv-compact and --last-per-subject are mutually exclusive")
    if obfuscation_key is not None and not obfuscate:
        raise UsageError("--obfuscation-key is for --obfuscate")
    pick = selection_of(given)
    wanted = Edit(
        name, pick, last_per_subject or 0, kv_compact, renumber, archive, consumers, obfuscate, obfuscation_key
    )
    dry_run = session.dry_run
    with shown("Reading", None, bar=progress, quiet=json) as tracker:
        done = edit_backup(path, target, wanted, replace=force, dry_run=dry_run, on_read=tracker.at)
    _show_edit(done, target, dry_run=dry_run, json=json)


def _show_edit(done: EditedBackup, target: Path, *, dry_run: bool, json: bool) -> None:
    if json and dry_run:
        kept = {"target": str(target), "messages": done.messages, "of_messages": done.picked.source_messages}
        raise DryRunError(effect=kept)
    if json:
        output.emit_json(done)
        return
    output.show_page(render_edit(done, dry_run=dry_run))
    if done.obfuscation is not None and done.obfuscation.key_file:
        output.note("The key file maps the hashes back to the names: share the backup, keep the key file private.")


class Revealed(Document):
    """An obfuscated value and the original one, equal if the key file does not have it."""

    value: str
    original: str


def lookup(
    key_file: Annotated[Path, Argument(metavar="KEYFILE", help="the file next to an obfuscated backup")],
    values: Annotated[list[str], Argument(metavar="VALUES", help="hashed names or subjects")],
    json: Json = False,
) -> int:
    """Show the original values of the hashes in an obfuscated backup, a line each.

    A subject is looked up token by token; a token that is not in the key file stays as it is. Ends with 3 if nothing of
    a value is in the key file.
    """
    from natsctl.client.backup.obfuscation import Obfuscator

    keys = Obfuscator(key_file)
    found = [Revealed(value, keys.reveal(value)) for value in values]
    if json:
        output.emit_json(found)
    else:
        for one in found:
            output.emit(one.original)
    unknown = [one.value for one in found if one.original == one.value]
    for value in unknown:
        output.note(f"{safe(value)} is not in {safe(str(key_file))}")
    return ExitCode.NOT_FOUND if unknown else ExitCode.DONE
