"""Advisories and metrics as they arrive: `natsctl events`."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from natsctl.api.errors import UsageError
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import (
    DURATION,
    ON,
    SUBJECTS,
    SWITCH,
    TEXT,
    WORDS,
    Flag,
    Given,
    Json,
    apply,
    flagged,
    length_option,
)
from natsctl.cli.framework.parameters import Option
from natsctl.cli.framework.resolve import suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.messaging.receive import ListenOptions, follow, listen
from natsctl.cli.render.event import cloud_event, parse_event, render_event, render_short
from natsctl.cli.render.text import safe
from natsctl.client.messaging.events import SOURCES, SYSTEM_ONLY, EventFilter, chosen, gets_server_events, make_filter
from natsctl.client.messaging.feed import Start, feed_of_stream

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message


class EventPrinter:
    """The output of the events that pass a filter; with `json` each on one line, as the server sent it."""

    def __init__(
        self, json: bool, *, cloudevent: bool = False, short: bool = False, wanted: EventFilter | None = None
    ) -> None:
        self.json = json
        self._cloudevent = cloudevent
        self._short = short
        self._filter = wanted or EventFilter()

    def banner(self, subjects: tuple[str, ...]) -> None:
        for subject in () if self.json or self._cloudevent else subjects:
            kind = "Metrics" if ".METRIC." in subject else "Advisories"
            output.note(f"Listening for {kind} on {safe(subject)}")

    async def show(self, manager: Manager, number: int, message: Message) -> bool:
        event = parse_event(message.body)
        if not self._filter.passes(message.body, event):
            return False
        if self._cloudevent:
            output.emit_json_line(cloud_event(event if event is not None else {"data": safe(_text(message.body))}))
        elif self.json:
            # A payload that is not JSON becomes a JSON string, so that every line is a document.
            output.emit_json_line(message.body if event is not None else json.dumps(_text(message.body)))
        elif self._short:
            output.emit(render_short(message.subject, message.body, time.time_ns()))
        else:
            output.emit(render_event(message.subject, message.body, time.time_ns()))
        return True

    def flush(self) -> None:
        sys.stdout.flush()


def _text(payload: bytes) -> str:
    return payload.decode("utf-8", "backslashreplace")


FLAGS = (
    Flag("--js-advisory", SWITCH, "kind.js_advisory", "advisories of JetStream"),
    Flag("--js-metric", SWITCH, "kind.js_metric", "metrics of JetStream, such as acknowledgment samples"),
    Flag("--srv-advisory", SWITCH, "kind.srv_advisory", "events of servers; for the system account"),
    Flag("--all", ON, "all", "every kind of event (the default)", aliases=("-a",)),
    Flag("--subjects", SUBJECTS, "subjects", "listen on these subjects as well as on the chosen kinds"),
    Flag("--stream", TEXT.named("STREAM"), "stream", "read events from this stream, stored and new"),
    Flag("--since", DURATION, "since", "with --stream: start with events this old"),
    Flag("--consumer", TEXT.named("[STREAM.]NAME"), "consumer", "only events of this consumer"),
    Flag("--type", WORDS.named("TYPE"), "types", "only events of this type, such as stream_action or api_*"),
    Flag("--filter", TEXT.named("REGEX"), "pattern", "only events with this in their JSON text, ignoring case"),
    Flag("--cloudevent", ON, "cloudevent", "one CloudEvents 1.0 document per line"),
    Flag("--short", ON, "short", "one line per event"),
)


@flagged(FLAGS)
def events(
    session: Session,
    given: Given,
    count: Annotated[int, Option("--count", metavar="N", help="end after N events", min=0)] = 0,
    wait: Annotated[float | None, length_option("--wait", help="end after this time without an event")] = None,
    json: Json = False,
) -> None:
    """Show advisories and metrics as they happen, until Ctrl-C, --count or --wait.

    By default all kinds are shown that this account may receive. -j prints each event as the server sent it.
    """
    asked: dict[str, Any] = {}
    apply(asked, FLAGS, given)
    if "since" in asked and "stream" not in asked:
        raise UsageError("--since needs --stream: only stored events can be read later")
    if asked.get("short") and (json or asked.get("cloudevent")):
        raise UsageError("--short is text: it goes with neither --json nor --cloudevent")
    wanted = make_filter(asked.get("pattern", ""), asked.get("types", ()), asked.get("consumer", ""))
    show = EventPrinter(json, cloudevent=asked.get("cloudevent", False), short=asked.get("short", False), wanted=wanted)
    listening = ListenOptions(tuple(asked.get("subjects", ())), "", count, wait)
    stream = asked.get("stream", "")
    if stream:
        with suggesting(session, stream):
            session.run(lambda manager: _stored(manager, stream, asked.get("since"), listening, show), lasting=True)
        return
    kinds = dict.fromkeys(SOURCES) if asked.get("all") else asked.get("kind", {})
    session.run(lambda manager: _live(manager, kinds, listening, show), lasting=True)


async def _live(manager: Manager, kinds: dict[str, bool | None], listening: ListenOptions, show: EventPrinter) -> None:
    if not listening.subjects or any(kinds.values()):
        wanted = chosen({kind: kinds.get(kind) for kind in SOURCES})
        if SYSTEM_ONLY in wanted and not kinds.get(SYSTEM_ONLY) and not await gets_server_events(manager.connection):
            wanted.remove(SYSTEM_ONLY)
        if not wanted:
            raise UsageError("no kind of event is chosen")
        with_prefix = manager.connection.target.event_subject
        subjects = tuple(with_prefix(one) for kind in wanted for one in SOURCES[kind])
        listening = replace(listening, subjects=(*listening.subjects, *subjects))
    await listen(manager, listening, show)


async def _stored(
    manager: Manager, stream: str, since_ns: int | None, listening: ListenOptions, show: EventPrinter
) -> None:
    start = Start("by_start_time", since_ns) if since_ns else Start()
    listening = replace(listening, subjects=listening.subjects or (f"Stream {stream}",))
    filters = [subject for subject in listening.subjects if not subject.startswith("Stream ")]
    async with await feed_of_stream(manager, stream, filters, start) as feed:
        await follow(manager, feed, listening, show)
