"""Round trips to servers and latency between them: `natsctl rtt` and `natsctl latency`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from natsctl.api.errors import ExitCode, UsageError
from natsctl.api.units import parse_size
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json, Progress, wait_seconds
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.session import Session
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.client.latency import LatencyReport, LatencyTest
    from natsctl.client.manager import Manager


def latency(
    session: Session,
    server_b: Annotated[str, Option("--server-b", metavar="URL", help="the server to receive on")],
    size: Annotated[str, Option("--size", metavar="SIZE", help="size of each message [8]")] = "8",
    rate: Annotated[int, Option("--rate", metavar="N", help="messages per second", min=1)] = 1000,
    duration: Annotated[str, Option("--duration", metavar="DURATION", help="duration [5s]")] = "5s",
    histogram: Annotated[
        str | None, Option("--histogram", metavar="FILE", help="write the percentiles to this file, for plotting")
    ] = None,
    progress: Progress = True,
    json: Json = False,
) -> None:
    """Measure how long messages take from the server of this context to another one, with the same login."""
    from natsctl.client.latency import LatencyTest

    test = LatencyTest(_size(size), rate, int((wait_seconds(duration, "--duration") or 0) * 1e9))
    test.check()
    if histogram is not None and not Path(histogram).absolute().parent.is_dir():
        raise UsageError(f"--histogram: {histogram}: there is no such folder")
    report = session.run(lambda manager: _measured(manager, server_b, test, quiet=json or not progress))
    if histogram is not None:
        _write(histogram, report)
    if json:
        import msgspec

        output.emit_json(msgspec.json.encode(report))
    else:
        from natsctl.cli.framework.output import show_page, width
        from natsctl.cli.render.measurements import render_latency

        show_page(render_latency(report, width() or 80))


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as failure:
        raise UsageError(f"--size: {failure}") from failure


async def _measured(manager: Manager, server_b: str, test: LatencyTest, *, quiet: bool) -> LatencyReport:
    from natsctl.cli.framework.live import progress
    from natsctl.client.dial import connect
    from natsctl.client.latency import measure_latency
    from natsctl.client.servers import server_urls

    target = manager.connection.target._replace(urls=server_urls(server_b, "--server-b"), origin="--server-b")
    async with await connect(target, name="natsctl latency") as other:
        with progress("Measuring", test.messages, "messages", quiet=quiet) as tracker:
            return await measure_latency(manager.connection, other, test, tracker.at)


def _write(path: str, report: LatencyReport) -> None:
    """Write the percentiles in the format of HDR histogram plotters, in milliseconds."""
    lines = ["Value    Percentile    TotalCount    1/(1-Percentile)\n\n"]
    for one in report.percentiles:
        share = one.percent / 100
        beyond = f"{1 / (1 - share):f}" if share < 1 else "inf"
        lines.append(f"{one.ns / 1e6:f}    {share:f}    {round(report.received * share)}    {beyond}\n")
    try:
        Path(path).write_text("".join(lines))
    except OSError as failure:
        raise UsageError(f"--histogram: {path}: {failure.strerror or failure}") from failure


def rtt(
    session: Session,
    iterations: Annotated[int, Argument(metavar="ITERATIONS", help="number of round trips [5]", min=1)] = 5,
    json: Json = False,
) -> int:
    """Show the mean round trip to every address of this context's servers; exit 5 if none can be reached."""
    from natsctl.client.latency import round_trips

    found = session.run(lambda manager: round_trips(manager.connection.target, iterations))
    if json:
        import msgspec

        output.emit_json(msgspec.json.encode(found))
    else:
        from natsctl.cli.render.measurements import rendered_trips

        for line in rendered_trips(found):
            output.emit(line)
        for trips in found:
            for trip in trips.results:
                if trip.error:
                    output.note(f"{safe(trip.address)}: {safe(trip.error)}")
    reached = any(not trip.error for trips in found for trip in trips.results)
    return ExitCode.DONE if reached else ExitCode.UNREACHABLE
