"""Making starts quick once: what is made, and how long a start takes before and after."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from natsctl.spark.session.class_data import archive_path, make_archive, recording
from natsctl.spark.session.launches import launch_of
from natsctl.spark.session.opened import own_session
from natsctl.spark.session.options import SparkOptions
from natsctl.spark.session.virtual_machine import Launch

FIRST_QUERY = "select id % 3 as k, count(*) from range(1000) group by 1"
"""What is timed from nothing to its answer."""


@dataclass(frozen=True)
class Warmed:
    """What was made, or was there; times are seconds from nothing to the first answer, None where not measured."""

    archive: Path
    made: bool
    before_s: float | None
    after_s: float


def warm(options: SparkOptions, *, again: bool = False, say: Callable[[str], None] = lambda text: None) -> Warmed:
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
        say(f"starting Spark on Java {launch.java.version} to see which classes it loads")
        with tempfile.TemporaryDirectory(prefix="natsctl-spark-") as folder:
            classes = Path(folder) / "classes"
            before_s = _trained(options, recording(launch, classes))
            say(f"writing {archive}")
            make_archive(launch, classes)
        launch = launch_of(options)
    say("starting Spark to measure")
    return Warmed(archive, made, before_s, timed_start(options, launch))


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


def _trained(options: SparkOptions, launch: Launch) -> float:
    begin_s = time.monotonic()
    with own_session(options, launch) as session:
        session.sql(FIRST_QUERY).collect()
        taken_s = time.monotonic() - begin_s
        from natsctl.spark.session.training import train

        train(session)
        return taken_s
