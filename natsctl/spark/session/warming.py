"""Making starts quick once: what is made, and how long a start takes before and after."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from natsctl.spark.session.class_data import archive_path, being_made, make_base, no_archive, recording
from natsctl.spark.session.launches import launch_of
from natsctl.spark.session.opened import own_session
from natsctl.spark.session.options import SparkOptions
from natsctl.spark.session.practice import practise
from natsctl.spark.session.virtual_machine import Launch, read_log

FIRST_QUERY = "select id % 3 as k, count(*) from range(1000) group by 1"
"""What is timed from nothing to its answer."""
SAY_EVERY_S = 10.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class Warmed:
    """What was made, or was there; times are seconds from nothing to the first answer, None where not measured."""

    archive: Path
    made: bool
    before_s: float | None
    after_s: float


def warm(options: SparkOptions, *, again: bool = False, say: Say = lambda text: None) -> Warmed:
    """Make what makes starts quick, unless it is there and not `again`.

    Without an archive Spark is started twice, else once. Raises JavaUnsuitable, SparkStartFailed, OSError.
    """
    launch = launch_of(options)
    archive = archive_path(launch.java, launch.home)
    before_s = None
    made = again or not archive.is_file()
    if made:
        archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=archive.parent):  # what cannot be written is told before a minute's work
            pass
        before_s = _make_archive(options, launch, archive, say)
        launch = launch_of(options)
    with _Phases(say) as phase:
        phase.begin("starting Spark to measure")
        return Warmed(archive, made, before_s, timed_start(options, launch))


def _make_archive(options: SparkOptions, launch: Launch, archive: Path, say: Say) -> float:
    """Start Spark, ask what commands ask, and have it write what it has loaded; return the time to the first answer."""
    with _Phases(say) as phase, being_made(archive) as building:
        phase.begin(f"starting Spark on Java {launch.java.version}")
        make_base(launch.java)
        begin_s = time.monotonic()
        with tempfile.TemporaryFile() as log:
            with own_session(options, recording(launch, building), log) as session:
                session.sql(FIRST_QUERY).collect()
                taken_s = time.monotonic() - begin_s
                phase.begin("asking what commands ask")
                practise(session, times=1)
                phase.begin(f"writing {archive}")
            if not building.is_file():
                raise no_archive(log=read_log(log))
    return taken_s


def archive_of(options: SparkOptions) -> Path:
    """Where the archive is, or would be, of a session with these options. Raises JavaUnsuitable, ExtraMissing."""
    launch = launch_of(options)
    return archive_path(launch.java, launch.home)


def timed_start(options: SparkOptions, launch: Launch) -> float:
    """The seconds from nothing to the first answer."""
    begin_s = time.monotonic()
    with own_session(options, launch) as session:
        session.sql(FIRST_QUERY).collect()
        return time.monotonic() - begin_s


class _Phases:
    """Says what is being done, and every SAY_EVERY_S how long that has taken."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._text, self._begin_s = "", 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        self._thread.join()

    def begin(self, text: str) -> None:
        """Say what is done now."""
        self._text, self._begin_s = text, time.monotonic()
        self._say(text)

    def _go_on(self) -> None:
        while not self._over.wait(SAY_EVERY_S):
            if self._text:
                self._say(f"{self._text}: {time.monotonic() - self._begin_s:.0f} s")
