"""`natsctl service ls`, `info`, `stats` and `ping`."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.options import Json, Names, session_of

MaybeService = Annotated[str, typer.Argument(metavar="SERVICE", help="the service", show_default=False)]
Service = Annotated[str, typer.Argument(metavar="SERVICE", help="the service")]
Instance = Annotated[str, typer.Argument(metavar="ID", help="only this instance", show_default=False)]


def ls(ctx: typer.Context, service: MaybeService = "", names: Names = False, json: Json = False) -> None:
    """List services, or the instances of one."""
    from natsctl.cli.render.service import render_services
    from natsctl.cli.screen import show_table
    from natsctl.client.services.ask import infos

    found = session_of(ctx).run(lambda manager: infos(manager.connection, service))
    distinct = list(dict.fromkeys(said.value.name for said in found))
    if names and json:
        output.emit_json(distinct)
    elif names:
        output.emit_names(distinct)
    elif json:
        output.emit_json([said.raw for said in found])
    else:
        show_table(render_services([said.value for said in found], service))


def info(
    ctx: typer.Context,
    service: Service,
    instance: Instance = "",
    endpoint: Annotated[
        str, typer.Option("--endpoint", "-e", metavar="REGEX", help="only endpoints whose name matches")
    ] = "",
    json: Json = False,
) -> None:
    """Show the instances of a service, their endpoints and statistics.

    With -j `info` and `stats` are those of the first instance, and `instances` has those of all.
    """
    from natsctl.cli.render.service import render_instance
    from natsctl.cli.screen import show_page
    from natsctl.client.services.ask import infos, stats

    shown = _matcher(endpoint)
    session = session_of(ctx)
    found = session.run(lambda manager: infos(manager.connection, service, instance))
    done = {said.value.id: said for said in session.run(lambda manager: stats(manager.connection, service, instance))}
    both = [(said, done[said.value.id]) for said in found if said.value.id in done]
    for one, two in both:
        for raw in (one.raw, two.raw):
            raw["endpoints"] = [end for end in raw.get("endpoints") or () if shown.search(str(end.get("name")))]
        one.value.endpoints = [end for end in one.value.endpoints if shown.search(end.name)]
    if json:
        instances = [{"info": one.raw, "stats": two.raw} for one, two in both]
        first = instances[0] if instances else {"info": None, "stats": None}
        output.emit_json({**first, "instances": instances})
        return
    for number, (one, two) in enumerate(both):
        if number:
            output.emit("")
        show_page(render_instance(one.value, two.value))


def _matcher(words: str) -> re.Pattern[str]:
    try:
        return re.compile(words)
    except re.error as failure:
        raise UsageError(f"--endpoint: {words!r} is not a regular expression: {failure}") from failure


def stats(ctx: typer.Context, service: Service, instance: Instance = "", json: Json = False) -> None:
    """Show the number of requests to each endpoint of a service, and how long they took."""
    from natsctl.cli.render.service import render_stats
    from natsctl.cli.screen import show_table
    from natsctl.client.services import ask as services

    found = session_of(ctx).run(lambda manager: services.stats(manager.connection, service, instance))
    if json:
        output.emit_json([said.raw for said in found])
    else:
        show_table(render_stats([said.value for said in found], service))


def ping(ctx: typer.Context, service: MaybeService = "", json: Json = False) -> None:
    """Show which instances answer, the quickest first."""
    from natsctl.cli.render.measurements import fine
    from natsctl.cli.render.tables import render_table
    from natsctl.cli.screen import show_table
    from natsctl.client.services.ask import pings

    found = session_of(ctx).run(lambda manager: pings(manager.connection, service))
    if json:
        output.emit_json([{**said.raw, "rtt": said.rtt_ns} for said in found])
        return
    rows = [(said.value.name, said.value.id, fine(said.rtt_ns)) for said in found]
    show_table(render_table("Answers", ("Name", "ID", "RTT"), rows, right=("RTT",)))
