"""How events are shown: long, short, as the server sent them, or in CloudEvents envelopes."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from natsctl.cli import output
from natsctl.cli.render.event import cloud_event, parse_event, render_event, render_short
from natsctl.cli.render.text import safe
from natsctl.client.messaging.events import Filter

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message


class EventShower:
    """Shows the events that pass a filter; with `json` each as the server sent it, on one line."""

    def __init__(
        self, json: bool, *, cloudevent: bool = False, short: bool = False, wanted: Filter | None = None
    ) -> None:
        self.json = json
        self._cloudevent = cloudevent
        self._short = short
        self._filter = wanted or Filter()

    def banner(self, subjects: tuple[str, ...]) -> None:
        """Say on stderr what is listened on."""
        for subject in () if self.json or self._cloudevent else subjects:
            kind = "Metrics" if ".METRIC." in subject else "Advisories"
            output.note(f"Listening for {kind} on {safe(subject)}")

    async def show(self, manager: Manager, number: int, message: Message) -> bool:
        """Show one event; False for one that is not wanted."""
        event = parse_event(message.body)
        if not self._filter.passes(message.body, event):
            return False
        if self._cloudevent:
            output.emit_json_line(cloud_event(event if event is not None else {"data": safe(_text(message.body))}))
        elif self.json:
            # What is no JSON becomes a JSON text, so that every line is a document.
            output.emit_json_line(message.body if event is not None else json.dumps(_text(message.body)))
        elif self._short:
            output.emit(render_short(message.subject, message.body, time.time_ns()))
        else:
            output.emit(render_event(message.subject, message.body, time.time_ns()))
        return True

    def flush(self) -> None:
        """Let what was shown be seen."""
        sys.stdout.flush()


def _text(payload: bytes) -> str:
    return payload.decode("utf-8", "backslashreplace")
