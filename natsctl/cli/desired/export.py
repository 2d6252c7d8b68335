"""`natsctl export`: the account, or some of its streams, as documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.exit_codes import ExitCode
from natsctl.cli import output
from natsctl.cli.desired import writing
from natsctl.cli.flags import flagged
from natsctl.cli.options import Json, session_of

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.plan.wanted import DocumentSet
    from natsctl.plan.world import World

MQTT = "$MQTT_"
"""How the streams begin that servers make for MQTT."""


@flagged()
def export(
    ctx: typer.Context,
    how: writing.Writing,
    streams: Annotated[
        list[str] | None,
        typer.Argument(metavar="STREAM", help="streams or buckets; * and ? match any characters", show_default=False),
    ] = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="also consumers without a durable name", show_default=False)
    ] = False,
    header: Annotated[
        bool, typer.Option("--header/--no-header", help="name the server in a comment at the top")
    ] = True,
    time: Annotated[bool, typer.Option("--time", help="add the time to that comment", show_default=False)] = False,
    json: Json = False,
) -> int:
    """Write the configuration of the account, or of these streams, as documents for natsctl apply.

    Streams include their durable consumers, buckets are written as buckets. What servers create themselves is left out,
    and what they fill in again. The order is stable: the same account gives the same text.
    """
    from natsctl.plan.export.export import Exporter, wanted_of

    session = session_of(ctx)
    names = streams or []
    world = session.run(lambda manager: _read(manager, names))
    wanted = wanted_of(world, ephemeral=ephemeral)
    said = _header(world, names, time) if header else ()
    to = how.to(json, said, lambda stream: not names or any(_is_named(stream, name) for name in names))
    writing.write(session, Exporter(wanted, how.full), to)
    return _told(world, wanted, session.run(_templates) if not names else [])


async def _read(manager: Manager, names: list[str]) -> World:
    """The streams that are named, or all but those of MQTT. Raises ApiResponseError for a name without a stream."""
    from natsctl.plan.world import read_world

    every = await manager.stream_names()
    if not names:
        mqtt = any(one.startswith(MQTT) for one in every)
        return await read_world(manager, [one for one in every if not one.startswith(MQTT)] if mqtt else None)
    found = [one for one in every if any(_is_named(one, name) for name in names)]
    for name in names:
        if not any(_is_named(one, name) for one in found):
            raise _no_stream(name, every)
    return await read_world(manager, found)


def _is_named(stream: str, name: str) -> bool:
    """Whether a word means a stream: by its name, or by that of the bucket that it is."""
    from natsctl.cli.names import is_match
    from natsctl.plan.asset import AssetKey

    return is_match(stream, name) or is_match(AssetKey(stream).name, name)


def _no_stream(name: str, known: list[str]) -> Exception:
    from natsctl.api.catalogue import error
    from natsctl.api.err_codes import ErrCode
    from natsctl.api.errors import ApiResponseError
    from natsctl.cli.suggest import did_you_mean

    failure = ApiResponseError(error(ErrCode.STREAM_NOT_FOUND), hint=did_you_mean(name, known))
    failure.args = (f"no stream or bucket is called {name}",)
    failure.text = failure.args[0]
    return failure


def _header(world: World, names: list[str], time: bool) -> list[str]:
    from natsctl.api.times import format_time
    from natsctl.cli.render.text import safe

    server = " ".join(str(world.server[key]) for key in ("server_name", "version") if key in world.server)
    moment = f" at {format_time(world.now_ns // 1_000_000_000 * 1_000_000_000)}" if time else ""
    some = f": {' '.join(names)}" if names else ""
    return [safe(f"natsctl export from server {server}{some}{moment}")]


async def _templates(manager: Manager) -> list[str]:
    """The names of stream templates, where the server has any and tells of them."""
    from natsctl.api.errors import NotAuthorisedError
    from natsctl.client.backup.configuration import may_have_templates

    try:
        return list(await manager.template_names()) if may_have_templates(manager.connection.info) else []
    except NotAuthorisedError:
        return []


def _told(world: World, wanted: DocumentSet, templates: list[str]) -> int:
    """Tell of what documents can not hold, and of streams that could not be shown: these are missing."""
    from natsctl.cli.render.text import safe
    from natsctl.plan.export.export import remarks

    for text in remarks(wanted):
        output.note(f"note: {safe(text)}")
    for name in templates:
        output.note(f"note: template {safe(name)} is left out, natsctl backup keeps it: documents hold streams")
    for name, reason in world.unreadable.items():
        output.note(f"Stream {safe(name)} is missing: {safe(reason)}")
    return ExitCode.FAILED if world.unreadable else ExitCode.DONE
