"""Counters: one as a page, many as a table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from natsctl.cli.render.page import Page
from natsctl.cli.render.tables import render_table
from natsctl.cli.render.text import ago, count, safe, when

if TYPE_CHECKING:
    from natsctl.cli.render.tables import Table
    from natsctl.client.counters import Counter


def render_counter(counter: Counter) -> Page:
    """Return a counter's value, its last change, and the parts that came from elsewhere."""
    page = Page(f"Counter {safe(counter.subject)}")
    top = page.section()
    top.row("Subject", safe(counter.subject))
    top.row("Value", safe(counter.val))
    top.maybe("Increment", safe(counter.incr))
    top.row("Stream", safe(counter.stream))
    top.row("Sequence", count(counter.seq))
    top.row("Changed", f"{when(counter.time)} ({ago(counter.time, time.time_ns())} ago)")
    sources = page.section("Counted by Sources")
    for stream, subjects in sorted(counter.sources.items()):
        sources.many(safe(stream), [f"{safe(value)} on {safe(subject)}" for subject, value in sorted(subjects.items())])
    return page


def render_counters(found: Sequence[Counter]) -> Table:
    """Return a row for each counter."""
    now_ns = time.time_ns()
    rows = [(one.subject, one.stream, one.val, one.incr, ago(one.time, now_ns)) for one in found]
    columns = ("Subject", "Stream", "Value", "Increment", "Last Change")
    return render_table("Counters", columns, rows, right=("Value", "Increment", "Last Change"))
