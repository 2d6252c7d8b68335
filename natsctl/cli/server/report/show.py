"""How every report is shown: as JSON, as tables, once or again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from natsctl.cli import output
from natsctl.cli.options import Json, Rounds, Watch
from natsctl.cli.render.tables import Columns, Reverse, Sort, Wide
from natsctl.cli.server.scope import require_all
from natsctl.cli.waiting import watch_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

    from natsctl.client.system.answers import Answers


class Report(NamedTuple):
    """What was found: a JSON document, the same as tables, and the answers that it was made of."""

    document: Any
    render: Callable[[int | None], list[RenderableType]]
    """Tables for a width in columns."""
    answers: Answers


class View(NamedTuple):
    """How a report is wanted: a bundle of flags for commands."""

    sort: Sort = None
    reverse: Reverse = False
    columns: Columns = None
    wide: Wide = False
    watch: Watch = None
    rounds: Rounds = 0
    json: Json = False


def show_report(build: Callable[[], Report], view: View, expect: int = 0) -> None:
    """Show one report, or with --watch one after the other until Ctrl-C or --count; raises Unreachable."""
    json = view.json
    every_s = watch_seconds(view.watch, view.rounds)
    if every_s is None:
        report = build()
        if json:
            output.emit_json(report.document)
        else:
            _print(report)
        require_all(report.answers, expect)
        return
    from natsctl.cli.live import emit_each
    from natsctl.cli.live import watch as watch_view

    if json:
        emit_each(lambda: build().document, every_s, view.rounds)
    else:
        watch_view(lambda: _together(build()), every_s, rounds=view.rounds)


def _print(report: Report) -> None:
    from natsctl.cli.screen import console, width

    for part in report.render(width()):
        console().print(part)


def _together(report: Report) -> RenderableType:
    from rich.console import Group

    from natsctl.cli.screen import width

    return Group(*report.render(width()))
