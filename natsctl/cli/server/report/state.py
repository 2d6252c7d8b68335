"""`natsctl server report cpu`, `mem`, `health`, `jetstream` and `downgrade`: how servers are."""

from __future__ import annotations

from typing import Annotated

import typer

from natsctl.api.errors import NatsctlError
from natsctl.cli import output
from natsctl.cli.flags import SWITCH, TEXT, Flag, Given, fields_of, flagged
from natsctl.cli.options import Json, Rounds, Watch, session_of
from natsctl.cli.render.tables import Reverse
from natsctl.cli.server.report.rows import top
from natsctl.cli.server.report.show import Report, View, show_report
from natsctl.cli.server.scope import SCOPE, Expect, note_missing, scope_of

HEALTH = (
    Flag("--js-enabled", SWITCH, "js-enabled-only", "also fail where JetStream is off", aliases=("-J",)),
    Flag("--server-only", SWITCH, "js-server-only", "do not check streams and consumers", aliases=("-S",)),
    Flag("--account", TEXT, "account", "check this account only"),
    Flag("--stream", TEXT, "stream", "check this stream only"),
    Flag("--consumer", TEXT, "consumer", "check this consumer only"),
)
_JETSTREAM = (Flag("--account", TEXT, "account", "the use of this account"),)


@flagged(SCOPE)
def cpu(
    ctx: typer.Context,
    given: Given,
    expect: Expect = 0,
    reverse: Reverse = False,
    watch: Watch = None,
    rounds: Rounds = 0,
    json: Json = False,
) -> None:
    """Show the CPU use of servers, highest first."""
    _use(ctx, "CPU Usage", "cpu", given, View(reverse=reverse, watch=watch, rounds=rounds, json=json), expect)


@flagged(SCOPE)
def mem(
    ctx: typer.Context,
    given: Given,
    expect: Expect = 0,
    reverse: Reverse = False,
    watch: Watch = None,
    rounds: Rounds = 0,
    json: Json = False,
) -> None:
    """Show the memory use of servers, highest first."""
    _use(ctx, "Memory Usage", "mem", given, View(reverse=reverse, watch=watch, rounds=rounds, json=json), expect)


def _use(ctx: typer.Context, title: str, what: str, given: Given, view: View, expect: int) -> None:
    from natsctl.cli.render.server_reports import render_use
    from natsctl.client.system.census import System

    session, scope = session_of(ctx), scope_of(given, expect)
    show = _memory if what == "mem" else lambda value: f"{float(value):.0f}%"

    def build() -> Report:
        census = session.run(lambda manager: System(manager).census(scope))
        rows = sorted(census, key=lambda one: -float(one.data.get(what) or 0), reverse=view.reverse)
        document = {one.name: one.data.get(what) or 0 for one in rows}
        return Report(document, lambda width: [render_use(title, what, rows, show, width)], census)

    show_report(build, view, expect)


def _memory(value: float) -> str:
    from natsctl.api.units import format_size

    return f"({format_size(int(value))})"


@flagged((*HEALTH, *SCOPE))
def health(
    ctx: typer.Context,
    given: Given,
    expect: Expect = 0,
    reverse: Reverse = False,
    watch: Watch = None,
    rounds: Rounds = 0,
    json: Json = False,
) -> None:
    """Show the health that servers report; fails if one is unhealthy."""
    from natsctl.cli.render.server_reports import healthy, render_health
    from natsctl.client.system.census import System

    session, scope = session_of(ctx), scope_of(given, expect)
    body = fields_of(HEALTH, given, details=True)

    def build() -> Report:
        answers = session.run(lambda manager: System(manager).ask("HEALTHZ", body, scope))
        answers.sort(key=lambda one: one.name, reverse=reverse)
        return Report(answers.raw, lambda width: render_health(answers, width), answers)

    last: list[Report] = []

    def kept() -> Report:
        last[:] = [build()]
        return last[0]

    show_report(kept, View(watch=watch, rounds=rounds, json=json), expect)
    ill = [one.name for one in last[0].answers if not healthy(one)]
    if ill:
        raise NatsctlError(f"not well: {', '.join(ill)}")


@flagged((*_JETSTREAM, *SCOPE))
def jetstream(
    ctx: typer.Context,
    given: Given,
    view: View,
    expect: Expect = 0,
    leaders: Annotated[
        bool, typer.Option("--leaders", "-l", help="also how many streams and consumers each server leads")
    ] = False,
) -> None:
    """Show what JetStream holds on each server, and the members of its cluster."""
    from natsctl.cli.render.server_reports import JETSTREAM, render_jetstream
    from natsctl.client.system.census import System
    from natsctl.client.system.reports import of_account

    session, scope = session_of(ctx), scope_of(given, expect)
    body = fields_of(_JETSTREAM, given)
    if leaders or "--account" in given:
        body.update(accounts=True, streams=True, consumer=True, config=True)
    account = str(given.get("--account", ""))

    def build() -> Report:
        answers = session.run(lambda manager: System(manager).ask("JSZ", body, scope))
        with_it = [one for one in answers if one.data and not one.data.get("disabled")]
        if account:
            with_it = [of_account(one, account) for one in with_it]
        rows, _ = top(with_it, JETSTREAM, view.sort or "cluster", view.reverse, 0, "cluster")
        return Report(
            answers.raw,
            lambda width: render_jetstream(answers, rows, account, leaders, width, view.columns, view.wide),
            answers,
        )

    show_report(build, view, expect)


@flagged(SCOPE)
def downgrade(
    ctx: typer.Context,
    given: Given,
    level: Annotated[int, typer.Argument(metavar="LEVEL", help="the JetStream API level to go back to", min=0)],
    every: Annotated[
        bool, typer.Option("--all", help="also the consumers of such streams that need no higher level themselves")
    ] = False,
    json: Json = False,
) -> None:
    """List streams and consumers that need a higher JetStream API level than LEVEL."""
    from natsctl.cli.render.server_reports import CONSUMERS_ABOVE, STREAMS_ABOVE
    from natsctl.cli.render.tables import render_sheet
    from natsctl.cli.screen import console, width
    from natsctl.client.system.census import System
    from natsctl.client.system.reports import above_level

    body = {"accounts": True, "streams": True, "consumer": True, "config": True}
    answers = session_of(ctx).run(lambda manager: System(manager).ask("JSZ", body, scope_of(given)))
    found = above_level(answers, level, every)
    if json:
        output.emit_json({kind: rows for kind, rows in found.items() if rows})
    for title, table, rows in (
        ()
        if json
        else (
            ("Assets: Streams", STREAMS_ABOVE, found["streams"]),
            ("Assets: Consumers", CONSUMERS_ABOVE, found["consumers"]),
        )
    ):
        if rows:
            console().print(render_sheet(title, table, rows, width()))
    if not json and not any(found.values()):
        output.emit("All assets are compatible with the specified API level.")
    note_missing(answers)
