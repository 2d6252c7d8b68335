"""How every report is shown: as JSON, as tables, once or again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from natsctl.cli import output
from natsctl.cli.options import Json, Watch
from natsctl.cli.render.columns import Columns, Reverse, Sort, Wide
from natsctl.cli.server.scope import require_all
from natsctl.cli.waiting import every_seconds

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
    json: Json = False


def show_report(build: Callable[[], Report], view: View, expect: int = 0) -> None:
    """Show one report, or with --watch one after the other until Ctrl-C; raises Unreachable."""
    json = view.json
    if view.watch is None:
        report = build()
        if json:
            output.emit_json(report.document)
        else:
            _print(report)
        require_all(report.answers, expect)
        return
    every_s = every_seconds(view.watch)
    if json:
        _lines(build, every_s)
    else:
        from natsctl.cli.live import watch as watch_view

        watch_view(lambda: _together(build()), every_s)


def _print(report: Report) -> None:
    from natsctl.cli.screen import console, width

    for part in report.render(width()):
        console().print(part)


def _together(report: Report) -> RenderableType:
    from rich.console import Group

    from natsctl.cli.screen import width

    return Group(*report.render(width()))


def _lines(build: Callable[[], Report], every_s: float) -> None:
    import time

    while True:
        output.emit_json_line(build().document)
        time.sleep(every_s)
