"""Flags, their values and progress of backups, shared by several commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from natsctl.api.errors import UsageError
from natsctl.api.units import parse_duration, parse_size
from natsctl.cli.framework import output
from natsctl.cli.framework.live import progress
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.client.backup.restore import OnExisting as Existing
    from natsctl.client.backup.transfer import Say, TransferProgress


Check = Annotated[bool, Option("--check", help="make the server check its data first")]
Consumers = Annotated[bool, Option("--consumers/--no-consumers", help="include consumers")]
ForceReplace = Annotated[bool, Option("--force", "-f", "--yes", help="replace an existing backup")]
ChunkSize = Annotated[
    str | None,
    Option("--chunk-size", metavar="SIZE", help="size of the chunks that are sent"),
]
WindowSize = Annotated[
    str | None,
    Option("--window-size", metavar="SIZE", help="max bytes in flight"),
]
IdleTimeout = Annotated[str, Option("--idle-timeout", metavar="DURATION", help="give up after this long without data")]
Retries = Annotated[int, Option("--retries", metavar="N", help="retry this many times after an interruption", min=0)]
Parallel = Annotated[int, Option("--parallel", metavar="N", help="streams handled at once", min=1, max=64)]
Cluster = Annotated[str, Option("--cluster", metavar="NAME", help="place in this cluster")]
Tags = Annotated[list[str] | None, Option("--tag", metavar="TAG", help="place on servers with this tag")]
Replicas = Annotated[int, Option("--replicas", metavar="N", help="number of copies", min=0)]
OnExisting = Annotated[
    str, Option("--on-existing", metavar="fail|skip|replace", help="what to do with a stream that exists")
]
Source = Annotated[Path, Argument(metavar="PATH", help="the backup: a directory or a file")]
Top = Annotated[Path, Argument(metavar="PATH", help="a backup, or a folder of backups")]

IDLE_TIMEOUT = "30s"
RETRIES = 3
PARALLEL = 4


def read_size(flag: str, text: str | None) -> int:
    if text is None:
        return 0
    try:
        return max(0, parse_size(text))
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error


def read_idle(text: str) -> float:
    try:
        seconds = parse_duration(text) / 1e9
    except ValueError as error:
        raise UsageError(f"--idle-timeout: {error}") from error
    if seconds <= 0:
        raise UsageError("--idle-timeout: must be greater than zero")
    return seconds


def read_existing(text: str) -> Existing:
    from natsctl.client.backup.restore import OnExisting as Existing

    try:
        return Existing(text.lower())
    except ValueError:
        raise UsageError(f"--on-existing: expected fail, skip or replace, not {text!r}") from None


def progress_log(json: bool) -> Say:
    """Return the function that reports progress as text: to stderr, or nowhere with -j."""
    return (lambda text: None) if json else (lambda text: output.log(safe(text)))


def load_overrides(config: str | None) -> dict[str, Any]:
    if not config:
        return {}
    from natsctl.api.stream import StreamConfig
    from natsctl.cli.assets import load_config

    return load_config(config, StreamConfig)


OnProgress = Callable[["TransferProgress"], None]


@contextmanager
def shown(begin: Callable[[TransferProgress], str], verb: str, *, bar: bool, quiet: bool) -> Iterator[OnProgress]:
    """Yield a function to call at each step; the first call prints `begin(progress)`, and `quiet` prints nothing."""
    if quiet:
        yield lambda progress: None
        return
    with progress(verb, None, bar=bar) as tracker:
        begun, done = False, 0

        def step(progress: TransferProgress) -> None:
            nonlocal begun, done
            if not begun:
                begun = True
                (output.note if bar and sys.stderr.isatty() else output.log)(begin(progress))
            done = progress.archive_bytes
            # The size of the stream is an estimate of its archive's size: raise the estimate rather than pass 100%.
            tracker.at(done, max(progress.total_bytes, done) or None)

        yield step
        if begun:
            tracker.at(done, done or 1)
