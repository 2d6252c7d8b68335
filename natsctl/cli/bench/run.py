"""What every benchmark command does: its flags become a Load, which is prepared, measured and reported."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from natsctl.api.errors import UsageError
from natsctl.api.units import plural
from natsctl.cli import output
from natsctl.cli.options import Json, Progress, session_of
from natsctl.client.bench.load import DEFAULT_BUCKET, DEFAULT_STREAM, Load

if TYPE_CHECKING:
    from natsctl.cli.flags import Given
    from natsctl.cli.progress import Tracker
    from natsctl.cli.session import Session
    from natsctl.client.bench.report import Report
    from natsctl.client.manager import Manager

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="the subject")]


class Reported(NamedTuple):
    """What is told of a benchmark: a bundle of flags for commands."""

    csv: Annotated[
        str | None, typer.Option("--csv", metavar="FILE", help="write a line for each client to this file")
    ] = None
    progress: Progress = True
    json: Json = False


def bench(
    ctx: typer.Context, kind: str, given: Given, reported: Reported, *, subject: str = "", force: bool = False
) -> None:
    """Run a benchmark and show its report."""
    load = load_of(kind, given, subject)
    session = session_of(ctx)
    csv, progress, json = reported
    if csv is not None and not Path(csv).absolute().parent.is_dir():
        raise UsageError(f"--csv: {csv}: there is no such folder")
    if load.purge and not _may_purge(session, load, force):
        return
    report = session.run(lambda manager: _measured(manager, load, quiet=json or not progress, json=json))
    if csv is not None:
        _write(csv, report)
    _show(report, json)


def load_of(kind: str, given: Given, subject: str) -> Load:
    """The load that the flags describe; raises UsageError for what does not go together."""
    from natsctl.cli.bench import flags
    from natsctl.cli.messaging.bodies import check_target

    fields: dict[str, Any] = {"kind": kind}
    rows = {flag.name: flag for table in vars(flags).values() if isinstance(table, tuple) for flag in table}
    for name, value in given.items():
        fields[str(rows[name].to)] = tuple(value) if isinstance(value, list) else value
    if subject:
        if kind != "sub":
            check_target(subject)
        fields["subject"] = subject
    load = Load(**fields)
    load.check()
    return load


def _may_purge(session: Session, load: Load, force: bool) -> bool:
    """Whether to purge; a person is asked before the messages of a stream go that is not for benchmarks."""
    from natsctl.cli.consent import check_consent, confirmed
    from natsctl.cli.names import suggesting

    if load.stream_name in (DEFAULT_STREAM, f"KV_{DEFAULT_BUCKET}"):
        return True
    check_consent(session, f"purge Stream {load.stream_name}", force)
    with suggesting(session, load.stream_name):
        messages = session.run(lambda manager: manager.stream_info(load.stream_name)).value.state.messages
    question = f"purge {plural(messages, 'message')} of Stream {load.stream_name}"
    return confirmed(session, question, force, typed=load.stream_name)


async def _measured(manager: Manager, load: Load, *, quiet: bool, json: bool) -> Report:
    from natsctl.cli.progress import progress
    from natsctl.cli.render.text import safe
    from natsctl.client.bench.measure import measure
    from natsctl.client.bench.prepare import prepared

    async with prepared(manager, load) as told:
        for line in () if json else told:
            output.log(safe(line))
        with contextlib.ExitStack() as stack:
            trackers: list[Tracker] = []

            def watch(done: int) -> None:
                if not trackers:  # rates and remaining time count from the first message
                    trackers.append(stack.enter_context(progress(load.kind, load.total, "messages", quiet=quiet)))
                trackers[0].at(done)

            return await measure(manager.connection.target, load, watch)


def _write(path: str, report: Report) -> None:
    from natsctl.client.bench.report import csv_text

    try:
        Path(path).write_text(csv_text(report))
    except OSError as failure:
        raise UsageError(f"--csv: {path}: {failure.strerror or failure}") from failure


def _show(report: Report, json: bool) -> None:
    if json:
        import msgspec

        output.emit_json(msgspec.json.encode(report))
        return
    from natsctl.cli.render.measurements import render_clients, render_report
    from natsctl.cli.screen import show_page, show_table

    show_page(render_report(report))
    if report.clients > 1:
        output.emit("")
        show_table(render_clients(report))
