"""The way of a traced message as a tree: servers, and below each what it gave the message to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from natsctl.api.times import parse_time
from natsctl.cli.render.values import duration, safe
from natsctl.client.messaging.message_trace import CONNECTIONS

if TYPE_CHECKING:
    from natsctl.client.messaging.message_trace import Report

ERROR = "✗"
_ONWARD, _LAST = "├─ ", "└─ "
_BESIDE, _BELOW = "│  ", "   "


def render_trace(report: Report, *, stamped: bool) -> str:
    """The tree, and how many of each kind got the message; `stamped` shows how long after its arrival."""
    lines = [*_server(report, "", _first_ns(report), stamped)]
    counts = Counter(label for one in report.walk() for label in _taken(one))
    total = ", ".join(f"{label} {number}" for label, number in sorted(counts.items()))
    lines += ["", f"Delivered to: {total}" if counts else "Nobody takes messages on this subject"]
    return "\n".join(lines)


def _server(report: Report, indent: str, began_ns: int, stamped: bool) -> Iterator[str]:
    server = report.raw.get("server") or {}
    place = f", cluster {safe(str(server['cluster']))}" if server.get("cluster") else ""
    yield f"{indent}Server {safe(str(server.get('name', '?')))} ({safe(str(server.get('ver', '?')))}){place}"
    events = report.events
    for number, event in enumerate(events, 1):
        last = number == len(events)
        stamp = f"  {_after(event, began_ns)}" if stamped else ""
        yield f"{indent}{_LAST if last else _ONWARD}{_event(event)}{stamp}"
        onward = report.onward.get(str(event.get("hop", "")))
        if onward is not None:
            yield from _server(onward, indent + (_BELOW if last else _BESIDE), began_ns, stamped)


def _event(event: dict[str, Any]) -> str:
    """One thing that happened."""
    kind = str(event.get("type", ""))
    failed = f"  {ERROR} {safe(str(event['error']))}" if event.get("error") else ""
    write = _EVENTS.get(kind)
    text = write(event) if write else safe(" ".join(f"{name}={value}" for name, value in event.items()))
    return text + failed


def _ingress(event: dict[str, Any]) -> str:
    account = f" in account {safe(str(event['acc']))}" if event.get("acc") else ""
    return f"from {_who(event)} on {_word(event, 'subj')}{account}"


def _egress(event: dict[str, Any]) -> str:
    subject = f" subscribed to {_word(event, 'sub')}" if event.get("sub") else ""
    group = f" in group {_word(event, 'queue')}" if event.get("queue") else ""
    return f"to {_who(event)}{subject}{group}"


def _stored(event: dict[str, Any]) -> str:
    nobody = ", without interest" if event.get("nointerest") else ""
    stream = _word(event, "stream") or "a Stream"
    return f"to JetStream: {stream} stores it as {_word(event, 'subject')}{nobody}"


_EVENTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "in": _ingress,
    "eg": _egress,
    "js": _stored,
    "sm": lambda event: f"mapped to {_word(event, 'to')}",
    "se": lambda event: f"exported to account {_word(event, 'acc')} as {_word(event, 'to')}",
    "si": lambda event: f"service of account {_word(event, 'acc')}: {_word(event, 'from')} to {_word(event, 'to')}",
}


def _who(event: dict[str, Any]) -> str:
    label = CONNECTIONS.get(event.get("kind", 0), "connection")
    name = f' "{_word(event, "name")}"' if event.get("name") else ""
    return f"{label}{name} cid {event.get('cid', '?')}"


def _word(event: dict[str, Any], key: str) -> str:
    return safe(str(event.get(key) or ""))


def _taken(report: Report) -> Iterator[str]:
    for event in report.events:
        if event.get("error"):
            continue
        if event.get("type") == "js":
            yield CONNECTIONS[5]
        elif event.get("type") == "eg":
            yield CONNECTIONS.get(event.get("kind", 0), "other")


def _first_ns(report: Report) -> int:
    return next((_ns(event) for event in report.events), 0)


def _ns(event: dict[str, Any]) -> int:
    try:
        return parse_time(str(event.get("ts", "")))
    except ValueError:
        return 0


def _after(event: dict[str, Any], began_ns: int) -> str:
    at_ns = _ns(event)
    return f"[+{duration(max(0, at_ns - began_ns))}]" if at_ns else ""
