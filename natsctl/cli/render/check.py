"""The result of a check in the formats of monitoring: a line for Nagios, JSON, metrics for Prometheus, tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from natsctl.cli.render.table import render_table
from natsctl.cli.render.values import safe

if TYPE_CHECKING:
    from rich.console import RenderableType

    from natsctl.client.checks.check import Check, Metric

_SAID = (("Crit", "critical"), ("Unknown", "unknown"), ("Warn", "warning"), ("OK", "ok"))


def nagios(check: Check) -> str:
    """One line: the status, the name, what was found, and after a bar the measured values with their thresholds."""
    said = [f"{mark}:{text}" for mark, field in _SAID for text in getattr(check, field)]
    line = " ".join([check.status.name, check.name, *said]).replace("|", "/")
    measured = " ".join(_measured(metric) for metric in check.metrics)
    return safe(f"{line} | {measured}" if measured else line)


def _measured(metric: Metric) -> str:
    unit = metric.unit
    limits = ";".join(
        "" if limit is None else _number(limit, unit) for limit in (metric.warning, metric.critical)
    ).rstrip(";")
    return f"{metric.name}={_number(metric.value, unit)}{unit}" + (f";{limits}" if limits else "")


def _number(value: float, unit: str) -> str:
    return f"{value:.4f}" if unit == "s" else f"{value:.0f}"


def document(check: Check) -> dict[str, Any]:
    """The result as a JSON object; lists that are empty are left out."""
    found: dict[str, Any] = {"status": check.status.name, "check_suite": check.suite, "check_name": check.name}
    for _, field in _SAID:
        if texts := getattr(check, field):
            found[field] = texts
    return {**found, "perf_data": [_metric(metric) for metric in check.metrics]}


def _metric(metric: Metric) -> dict[str, Any]:
    """Return a value with its thresholds, 0 for one that is not set: readers find the same keys everywhere."""
    said = {"name": metric.name, "value": metric.value}
    said |= {"warning": metric.warning or 0, "critical": metric.critical or 0}
    return said | ({"unit": metric.unit} if metric.unit else {})


def prometheus(check: Check, namespace: str) -> str:
    """Gauges in Prometheus' text format, the status among them."""
    item = f'item="{_label(check.name)}"'
    lines = []
    for metric in check.metrics:
        name = f"{namespace}_{check.suite}_{metric.name}"
        value = int(metric.value) if float(metric.value).is_integer() else metric.value
        lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} gauge", f"{name}{{{item}}} {value}"]
    name = f"{namespace}_{check.suite}_status_code"
    lines += [f"# HELP {name} Status code as Nagios counts: 0 OK, 1 warning, 2 critical, 3 unknown"]
    lines += [f"# TYPE {name} gauge", f'{name}{{{item},status="{check.status.name}"}} {int(check.status)}']
    return "\n".join(lines)


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def tables(check: Check) -> list[RenderableType]:
    """What was found and what was measured, for a person."""
    from rich.text import Text

    parts: list[RenderableType] = [Text(safe(f"{check.name}: {check.status.name}"), style="bold")]
    said = [(mark.upper(), text) for mark, field in _SAID for text in getattr(check, field)]
    if said:
        parts.append(render_table("Status Detail", ("Status", "Message"), said))
    rows = [
        (
            metric.name,
            f"{_shown(metric.value)}{f' {metric.unit}' if metric.unit else ''}",
            _shown(metric.warning),
            _shown(metric.critical),
            metric.help,
        )
        for metric in check.metrics
    ]
    if rows:
        columns = ("Metric", "Value", "Warning", "Critical", "Description")
        parts.append(render_table("Check Metrics", columns, rows, columns[1:4]))
    return parts


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4f}"
