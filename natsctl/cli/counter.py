"""`natsctl counter`: counters kept in streams."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Details, Json, Names, check_details
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.resolve import suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.render.page import Page
from natsctl.cli.render.tables import Table, render_table
from natsctl.cli.render.text import ago, count, safe, when

if TYPE_CHECKING:
    from natsctl.client.counters import Counter


def render_counter(counter: Counter) -> Page:
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
    now_ns = time.time_ns()
    rows = [(one.subject, one.stream, one.val, one.incr, ago(one.time, now_ns)) for one in found]
    columns = ("Subject", "Stream", "Value", "Increment", "Last Change")
    return render_table("Counters", columns, rows, right=("Value", "Increment", "Last Change"))


COUNTER = "client.counters:Counter"


Subject = Annotated[str, Argument(metavar="SUBJECT", help="the counter's subject")]
Pattern = Annotated[str, Argument(metavar="SUBJECT", help="subjects, wildcards allowed")]
Stream = Annotated[
    str,
    Option("--stream", metavar="STREAM", help="its stream, if several have the subject [the only one]"),
]


def get(session: Session, subject: Subject, stream: Stream = "", json: Json = False) -> None:
    """Show the value of a counter."""
    found = _counter(session, subject, stream)
    output.emit_json(found) if json else output.emit(found.val)


def view(session: Session, subject: Subject, stream: Stream = "", json: Json = False) -> None:
    """Show a counter, its last change, and the counts of the streams that it sources."""
    found = _counter(session, subject, stream)
    output.emit_json(found) if json else output.show_page(render_counter(found))


def ls(
    session: Session,
    subject: Pattern = "",
    stream: Stream = "",
    names: Names = False,
    details: Details = False,
    json: Json = False,
) -> None:
    """List the counters on a subject, in a stream, or all.

    With -j their subjects are one array, and with -j --details whole objects.
    """
    from natsctl.client.counters import counters

    check_details(details, json)
    with suggesting(session, stream):
        found = session.run(lambda manager: counters(manager, subject, stream))
    subjects = dict.fromkeys(one.subject for one in found)
    if json:
        output.emit_json(msgspec.json.encode(found) if details else list(subjects))
    elif names:
        output.emit_names(subjects)
    elif found:
        output.show_table(render_counters(found))
    else:
        output.note("No Counters found")


def _counter(session: Session, subject: str, stream: str) -> Counter:
    from natsctl.cli.messaging.bodies import check_target
    from natsctl.client.counters import counter

    check_target(subject)
    with suggesting(session, stream):
        return session.run(lambda manager: counter(manager, subject, stream))


Number = Annotated[str, Argument(metavar="VALUE", help="a whole number of any size [1]")]


def increment(session: Session, subject: Subject, value: Number = "1", json: Json = False) -> None:
    """Add to a counter, and show its new value."""
    _add(session, subject, value, 1, json)


def decrement(session: Session, subject: Subject, value: Number = "1", json: Json = False) -> None:
    """Subtract from a counter, and show its new value."""
    _add(session, subject, value, -1, json)


def _add(session: Session, subject: str, value: str, sign: int, json: bool) -> None:
    from natsctl.cli.messaging.bodies import check_target
    from natsctl.client.counters import add, read_number

    check_target(subject)
    number = sign * read_number(value)
    ack = session.run(lambda manager: add(manager, subject, number))
    output.emit_json(ack.raw) if json else output.emit(str(ack.raw.get("val", "")))


VERBS = (
    verb("get, g", get, COUNTER, "natsctl counter get visits.home"),
    verb("view, v", view, COUNTER),
    verb("ls, list, l", ls, f"schema:Names|{COUNTER}[]", "natsctl counter ls 'visits.>'"),
    verb("increment, incr, inc, i", increment, "PubAck", "natsctl counter increment visits.home 5"),
    verb("decrement, decr, dec, d", decrement, "PubAck"),
)
