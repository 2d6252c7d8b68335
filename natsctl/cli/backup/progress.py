"""How far one stream's backup or restore is: what begins, then a bar or lines, all on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from natsctl.cli import output
from natsctl.cli.progress import progress

if TYPE_CHECKING:
    from natsctl.client.backup.progress import Progress

OnProgress = Callable[["Progress"], None]


@contextmanager
def shown(begin: Callable[[Progress], str], verb: str, *, bar: bool, quiet: bool) -> Iterator[OnProgress]:
    """A function to call at each step; the first call tells `begin(progress)`, and with `quiet` nothing is told."""
    if quiet:
        yield lambda progress: None
        return
    with progress(verb, None, bar=bar) as tracker:
        begun, done = False, 0

        def step(progress: Progress) -> None:
            nonlocal begun, done
            if not begun:
                begun = True
                (output.note if bar and sys.stderr.isatty() else output.log)(begin(progress))
            done = progress.archive_bytes
            # The size of the stream is a guess at what its archive will have: grow the guess rather than pass 100%.
            tracker.at(done, max(progress.total_bytes, done) or None)

        yield step
        if begun:
            tracker.at(done, done or 1)
