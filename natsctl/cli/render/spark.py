"""Spark on this machine as pages: what was checked, what was made, what runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsctl.api.units import SECOND, format_duration, format_size
from natsctl.cli.render.page import Page
from natsctl.cli.render.values import safe

if TYPE_CHECKING:
    from natsctl.cli.spark.shapes import SparkServer, WarmStart
    from natsctl.spark.session.checkup import Checkup

_SIGNS = {"good": "", "warning": "! ", "wrong": "✗ "}


def render_checkup(found: Checkup) -> Page:
    """A row for each finding, and what to do below it."""
    page = Page("Spark is ready" if found.ready else "Spark cannot start")
    rows = page.section()
    for one in found.findings:
        rows.row(safe(one.name), f"{_SIGNS[one.state]}{safe(one.found)}")
        for line in one.do.splitlines():
            rows.row("", f"→ {safe(line)}")
    return page


def render_warm(done: WarmStart) -> Page:
    """What was made, and what it brings."""
    page = Page("Spark starts quickly" if done.made else "Spark starts quickly already")
    rows = page.section()
    rows.row("Archive", safe(done.archive))
    rows.row("Size", format_size(done.archive_bytes))
    if done.before_s is not None:
        rows.row("First Answer Before", f"{done.before_s:.1f} s")
    rows.row("First Answer Now" if done.before_s is not None else "First Answer", f"{done.after_s:.1f} s")
    return page


def render_server(server: SparkServer) -> Page:
    """What is known of the server in background."""
    page = Page("Spark is running in the background" if server.running else "Spark is not running in the background")
    rows = page.section()
    rows.maybe("Process", str(server.pid or ""))
    rows.maybe("Address", f"127.0.0.1:{server.port}" if server.port else "")
    rows.maybe("Started", safe(server.started or ""))
    rows.maybe("Tasks Run On", safe(server.master or ""))
    rows.maybe("Java", safe(server.java or ""))
    rows.maybe("Memory", format_size(server.memory_bytes) if server.memory_bytes else "")
    rows.maybe("Stops When Idle For", format_duration(round(server.idle_stop_s * SECOND)) if server.idle_stop_s else "")
    rows.maybe("Log", safe(server.log or ""))
    return page
