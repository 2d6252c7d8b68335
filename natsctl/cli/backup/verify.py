"""`backup verify`: whether backups are complete, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import NatsctlError
from natsctl.api.exit_codes import ExitCode
from natsctl.cli import output
from natsctl.cli.backup.options import Top
from natsctl.cli.options import Json, Progress
from natsctl.cli.progress import progress as shown

if TYPE_CHECKING:
    from natsctl.client.backup.verify import Verdict


def verify(path: Top, progress: Progress = True, json: Json = False) -> int:
    """Check backups: checksums, archives to the end mark, and contents against their descriptions.

    Reads every byte; ends with 1 where anything is wrong. Needs no server.
    """
    from natsctl.api.errors import UsageError
    from natsctl.client.backup.found import candidates
    from natsctl.client.backup.verify import verify_account

    paths = list(candidates(path)) if path.exists() else [path]
    if not paths:
        raise UsageError(f"no backup below {path}", hint="a directory with backup.json, a .tgz, or stream_*.json files")
    verdicts = _judge(paths, bar=progress, quiet=json)
    missing = verify_account(path, paths)
    whole = not missing and all(verdict.whole for verdict in verdicts)
    if json:
        from msgspec import to_builtins

        output.emit_json({"whole": whole, "backups": to_builtins(verdicts), "missing": missing})
    else:
        _show(verdicts, missing)
    return ExitCode.DONE if whole else NatsctlError.exit_code


def validate(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="the backup: a directory or a file")],
    progress: Progress = True,
) -> None:
    """Check one stream backup and print a line with its numbers, or end with 1 where it is not whole.

    Reads every byte; needs no server. natsctl backup verify checks many backups and shows what was found of each.
    """
    from natsctl.api.errors import StorageError, UsageError
    from natsctl.cli.render.backup import render_whole

    if not path.exists():
        raise UsageError(f"there is no backup at {path}")
    verdict = _judge([path], bar=progress, quiet=False)[0]
    if not verdict.whole:
        raise StorageError("; ".join(check.detail for check in verdict.checks if not check.ok))
    output.emit(render_whole(verdict))


def _judge(paths: list[Path], *, bar: bool, quiet: bool) -> list[Verdict]:
    """The verdicts, with a bar over the size of all files."""
    from natsctl.client.backup.verify import verify as judge

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


def _show(verdicts: list[Verdict], missing: list[str]) -> None:
    from natsctl.cli.render.backup import render_verdicts, render_verdicts_line
    from natsctl.cli.render.text import safe
    from natsctl.cli.screen import show_table

    show_table(render_verdicts(verdicts))
    for text in missing:
        output.note(safe(text))
    output.note(render_verdicts_line(verdicts, missing))
