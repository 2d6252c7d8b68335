"""Spark on this machine: `natsctl spark doctor`, `warm`, and the Spark in the background."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from natsctl.api.errors import ExitCode, NotFoundError
from natsctl.api.model import Model, Size64, Time
from natsctl.api.units import SECOND, parse_duration
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Conf, JavaPath, Json
from natsctl.cli.framework.parameters import Option
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.render.text import safe
from natsctl.client.message import DryRunError
from natsctl.spark.session.connect import (
    BackgroundServer,
    log_file,
    memory_bytes,
    recorded_server,
    running_server,
    start_server,
    stop_server,
)
from natsctl.spark.session.spark_options import SparkOptions, parse_conf


class WarmStart(Model, kw_only=True):
    """The archive for quick starts; `made` is false if it existed before."""

    archive: str
    archive_bytes: Size64
    made: bool


class SparkServer(Model, kw_only=True):
    """A Spark in the background; unknown values are null, as is the idle stop of one that never stops by itself."""

    running: bool
    pid: int | None = None
    port: int | None = None
    started: Time | None = None
    master: str | None = None
    java: str | None = None
    memory_bytes: Size64 | None = None
    idle_stop_s: float | None = None
    log: str | None = None


def doctor(
    java: JavaPath = "",
    start: Annotated[bool, Option("--start", help="also start Spark and measure the time to its first answer")] = False,
    json: Json = False,
) -> int:
    """Check what Spark needs on this machine: packages, Java and caches; and say what to do.

    Ends with 1 if Spark cannot start.
    """
    from natsctl.spark.session.doctor import check_up

    found = check_up(SparkOptions(master="local[*]", java=java), start=start)
    if json:
        output.emit_json(found)
    else:
        from natsctl.cli.render.spark_reports import render_checkup

        output.show_page(render_checkup(found))
    return ExitCode.DONE if found.ready else ExitCode.FAILED


def warm(
    session: Session,
    java: JavaPath = "",
    force: Annotated[bool, Option("--force", help="create it again if it exists")] = False,
    json: Json = False,
) -> None:
    """Create an archive of the classes that Spark loads; it halves the start-up time.

    Starts Spark once for half a minute and 160 MB in ~/.cache/natsctl (XDG_CACHE_HOME). Commands use it as
    long as it fits the Java and the Spark that are installed. To measure a
    start: natsctl spark doctor --start.
    """
    from natsctl.spark.session.doctor import archive_of
    from natsctl.spark.session.doctor import warm as make

    options = SparkOptions(master="local[*]", java=java)
    if session.dry_run:
        raise DryRunError(effect={"make": str(archive_of(options)), "again": force})
    say = (lambda text: None) if json else (lambda text: output.log(safe(text)))
    done = make(options, again=force, say=say)
    answer = WarmStart(
        archive=str(done.archive),
        archive_bytes=done.archive.stat().st_size,
        made=done.made,
    )
    if json:
        output.emit_json(answer)
    else:
        from natsctl.cli.render.spark_reports import render_warm

        output.show_page(render_warm(answer))


def _idle_seconds(text: str) -> float:
    if (length_ns := parse_duration(text)) < 0:
        raise ValueError("expected a time such as 8h, or 0 for never")
    return length_ns / SECOND


def start(
    session: Session,
    master: Annotated[
        str, Option("--master", metavar="URL", help="master URL: local[N], spark://host:7077")
    ] = "local[*]",
    java: JavaPath = "",
    conf: Conf = None,
    idle_stop: Annotated[
        float,
        Option(
            "--idle-stop", metavar="DURATION", help="stop after this long without use; 0: never", read=_idle_seconds
        ),
    ] = 8 * 3600.0,
    json: Json = False,
) -> None:
    """Start Spark in the background: after the first command, queries take about a second.

    It listens on the loopback address and needs a token that only this user has. It takes about 1 GB of memory until
    natsctl spark stop.
    """
    options = SparkOptions(master=master, java=java, conf=parse_conf(conf))
    options.check()
    server = running_server()
    if session.dry_run:
        raise DryRunError(effect={"start": server is None})
    if server is not None:
        output.note("Spark is already running in the background")
    elif not json:
        output.note("starting Spark in the background")
    _show(_shape(server or start_server(options, idle_stop)), json)


def stop(session: Session, json: Json = False) -> None:
    """Stop the Spark in the background, and its queries with it. Ends with 3 if none is running."""
    server = _running()
    if session.dry_run:
        raise DryRunError(effect={"stop": server.pid})
    stop_server(server)
    _show(_shape(server), json)


def status(json: Json = False) -> int:
    """Show the Spark in the background. Ends with 3 if none is running."""
    server = running_server()
    _show(_shape(server) if server else SparkServer(running=False), json)
    return ExitCode.DONE if server else ExitCode.NOT_FOUND


def _running() -> BackgroundServer:
    """Return the running server, also one of another version of Spark. Raises NotFoundError."""
    server = recorded_server()
    if server is None or not server.runs:
        raise NotFoundError("no Spark is running in the background", hint="natsctl spark start starts one")
    return server


def _shape(server: BackgroundServer) -> SparkServer:
    return SparkServer(
        running=server.runs,
        pid=server.pid,
        port=server.port,
        started=datetime.fromtimestamp(server.started_s, UTC).isoformat().replace("+00:00", "Z"),
        master=server.master,
        java=server.java,
        memory_bytes=memory_bytes(server),
        idle_stop_s=server.idle_stop_s or None,
        log=str(log_file()),
    )


def _show(server: SparkServer, json: bool) -> None:
    if json:
        output.emit_json(server)
    else:
        from natsctl.cli.render.spark_reports import render_server

        output.show_page(render_server(server))


VERBS = (
    verb(
        "doctor, check",
        doctor,
        "spark.session.doctor:Checkup",
        "natsctl spark doctor",
        "natsctl spark doctor --start -j",
    ),
    verb("warm", warm, "cli.spark:WarmStart", "natsctl spark warm"),
    verb(
        "start, run",
        start,
        "cli.spark:SparkServer",
        "natsctl spark start",
        "natsctl spark start --conf spark.driver.memory=8g",
    ),
    verb("stop", stop, "cli.spark:SparkServer", "natsctl spark stop"),
    verb("status, info", status, "cli.spark:SparkServer", "natsctl spark status"),
)
