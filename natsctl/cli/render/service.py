"""Services of the micro protocol: their lists, pages and statistics."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET

from natsctl.api.times import is_zero
from natsctl.cli.render.measurements import fine
from natsctl.cli.render.page import Page, Section
from natsctl.cli.render.tables import render_table
from natsctl.cli.render.text import ago, count, safe, when
from natsctl.client.services import Endpoint, EndpointStats, ServiceInfo, ServiceStats

if TYPE_CHECKING:
    from natsctl.cli.render.tables import Table

_STATS = ("ID", "Endpoint", "Requests", "Queue Group", "Errors", "Processing Time", "Average Time")
_NUMBERS = ("Requests", "Errors", "Processing Time", "Average Time")


def render_services(found: Sequence[ServiceInfo], service: str) -> Table:
    """Return a row for each instance."""
    title = f"{service} Service Instances" if service else "All Services"
    rows = [(one.name, one.version, one.id, one.description) for one in found]
    return render_table(title, ("Name", "Version", "ID", "Description"), rows)


def render_stats(found: Sequence[ServiceStats], service: str) -> Table:
    """Return a row for each endpoint of each instance, and their sums."""
    rows: list[Sequence[str]] = []
    every = [one for instance in found for one in instance.endpoints]
    for instance in found:
        for number, one in enumerate(instance.endpoints):
            rows.append((instance.id if not number else "", one.name, *_figures(one)))
    if len(every) > 1:
        total = EndpointStats(name="", subject="")
        for one in every:
            total.num_requests += one.num_requests
            total.num_errors += one.num_errors
            total.processing_time += one.processing_time
        total.average_processing_time = total.processing_time // max(total.num_requests, 1)
        rows.append(("All", "", *_figures(total)))
    return render_table(f"{service} Service Statistics", _STATS, rows, right=_NUMBERS, least=("Processing Time", "ID"))


def _figures(one: EndpointStats) -> tuple[str, ...]:
    return (
        count(one.num_requests),
        one.queue_group,
        count(one.num_errors),
        fine(one.processing_time),
        fine(one.average_processing_time),
    )


def render_instance(info: ServiceInfo, stats: ServiceStats) -> Page:
    """Return the page of one instance: its description, and what it does and has done."""
    page = Page("Service Information")
    top = page.section()
    top.row("Service", safe(f"{info.name} ({info.id})"))
    top.maybe("Description", safe(info.description))
    top.row("Version", safe(info.version))
    if not is_zero(stats.started):
        top.row("Started", f"{when(stats.started)} ({ago(stats.started, time.time_ns())} ago)")
    top.many("Metadata", [safe(f"{key}: {value}") for key, value in sorted((info.metadata or {}).items())])
    done = {one.name: one for one in stats.endpoints}
    for endpoint in info.endpoints:
        _add_endpoint(page.section(f"Endpoint {safe(endpoint.name)}"), endpoint, done.get(endpoint.name))
    return page


def _add_endpoint(section: Section, endpoint: Endpoint, done: EndpointStats | None) -> None:
    section.row("Subject", safe(endpoint.subject))
    section.maybe("Queue Group", safe(endpoint.queue_group))
    section.many("Metadata", [safe(f"{key}: {value}") for key, value in sorted((endpoint.metadata or {}).items())])
    if done is None:
        return
    section.row("Requests", count(done.num_requests))
    section.row("Processing Time", f"{fine(done.processing_time)} (average {fine(done.average_processing_time)})")
    section.row("Errors", count(done.num_errors))
    section.maybe("Last Error", safe(done.last_error))
    if done.data is not UNSET:
        section.row("Data", safe(json.dumps(done.data, ensure_ascii=False)))
