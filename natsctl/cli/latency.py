"""Round trips to servers and latency between them: `natsctl rtt` and `natsctl latency`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from natsctl.api.errors import ExitCode, UsageError
from natsctl.api.units import parse_size
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json, Progress, length_option
from natsctl.cli.framework.live import progress
from natsctl.cli.framework.parameters import Argument, Option, as_usage_error
from natsctl.cli.framework.session import Session
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.client.latency import LatencyReport, LatencyTest
    from natsctl.client.manager import Manager


def latency(
    session: Session,
    server_b: Annotated[str, Option("--server-b", metavar="URL", help="the server to receive on")],
    size: Annotated[int, Option("--size", metavar="SIZE", help="size of each message [8]", read=parse_size)] = 8,
    rate: Annotated[int, Option("--rate", metavar="N", help="messages per second", min=1)] = 1000,
    duration: Annotated[float, length_option("--duration", help="duration [5s]")] = 5.0,
    histogram: Annotated[
        str | None, Option("--histogram", metavar="FILE", help="write the percentiles to this file, for plotting")
    ] = None,
    progress: Progress = True,
    json: Json = False,
) -> None:
    """Measure how long messages take from the server of this context to another one, with the same login."""
    from natsctl.client.latency import LatencyTest

    test = LatencyTest(size, rate, int(duration * 1e9))
    test.check()
    if histogram is not None and not Path(histogram).absolute().parent.is_dir():
        raise UsageError(f"--histogram: {histogram}: there is no such folder")
    report = session.run(lambda manager: _measured(manager, server_b, test, quiet=json or not progress))
    if histogram is not None:
        _write(histogram, report)
    if json:
        output.emit_json(report)
    else:
        from natsctl.cli.render.measurements import render_latency

        output.show_page(render_latency(report, output.width() or 80))


async def _measured(manager: Manager, server_b: str, test: LatencyTest, *, quiet: bool) -> LatencyReport:
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
    for percentile in report.percentiles:
        share = percentile.percent / 100
        beyond = f"{1 / (1 - share):f}" if share < 1 else "inf"
        lines.append(f"{percentile.ns / 1e6:f}    {share:f}    {round(report.received * share)}    {beyond}\n")
    with as_usage_error(f"--histogram: {path}"):
        Path(path).write_text("".join(lines))


def rtt(
    session: Session,
    iterations: Annotated[int, Argument(metavar="ITERATIONS", help="number of round trips [5]", min=1)] = 5,
    json: Json = False,
) -> int:
    """Show the mean round trip to every address of this context's servers; exit 5 if none can be reached."""
    from natsctl.client.latency import round_trips

    found = session.run(lambda manager: round_trips(manager.connection.target, iterations))
    if json:
        output.emit_json(found)
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
