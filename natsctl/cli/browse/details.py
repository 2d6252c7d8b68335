"""The right side for each kind of entry: the pages of the command line, and one message in several forms."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from natsctl.api import headers
from natsctl.api.units import format_size, plural
from natsctl.cli.render.page import Page
from natsctl.cli.render.text import body_text, count, duration, safe, stamp, when

if TYPE_CHECKING:
    from natsctl.api.archive.archive import ArchivedMessage
    from natsctl.api.consumer import ConsumerInfo
    from natsctl.api.stream import StreamInfo
    from natsctl.client.deadletters.letters import DeadLetter
    from natsctl.client.explain.explanation import Explanation
    from natsctl.client.services import ServiceStats
    from natsctl.client.system.system_account import ServerAnswer

MAX_BODY: Final = 256 * 1024
"""Bytes of a body that are shown; `natsctl stream get` prints all of it."""
FORMS: Final = ("text", "json", "hex")


def stream_config(info: StreamInfo) -> Page:
    from natsctl.cli.render.streams import render_stream, render_stream_state

    return _without(render_stream(info), render_stream_state(info))


def stream_state(info: StreamInfo) -> Page:
    from natsctl.cli.render.streams import render_stream_state

    return render_stream_state(info)


def consumer_config(info: ConsumerInfo) -> Page:
    from natsctl.cli.render.consumers import render_consumer, render_consumer_state

    now_ns = time.time_ns()
    return _without(render_consumer(info, now_ns), render_consumer_state(info, now_ns))


def consumer_state(info: ConsumerInfo) -> Page:
    from natsctl.cli.render.consumers import render_consumer_state

    return render_consumer_state(info, time.time_ns())


def kv_status(info: Any) -> Page:
    from natsctl.cli.render.bucket_pages import render_kv_bucket

    return render_kv_bucket(info)


def object_status(info: Any) -> Page:
    from natsctl.cli.render.bucket_pages import render_object_bucket

    return render_object_bucket(info)


def service_page(instances: list[ServiceStats]) -> Page:
    page = Page(f"Service {safe(instances[0].name)}")
    for instance in instances:
        section = page.section(f"{safe(instance.id)} {safe(instance.version)}, since {when(instance.started)}")
        for endpoint in instance.endpoints:
            times = f"{duration(endpoint.average_processing_time)} on average"
            section.row(
                safe(endpoint.name), f"{safe(endpoint.subject)}, {plural(endpoint.num_requests, 'request')}, {times}"
            )
            if endpoint.num_errors:
                section.row("", f"{plural(endpoint.num_errors, 'error')}: {safe(endpoint.last_error)}")
    return page


def letter_page(letter: DeadLetter) -> Page:
    page = Page(f"Message {letter.seq} of Stream {safe(letter.stream)}")
    section = page.section()
    section.row("Consumer", safe(letter.consumer))
    section.row("Sequence", count(letter.seq))
    section.maybe("Subject", safe(letter.subject))
    section.row("Reason", safe(letter.reason))
    section.row("Deliveries", count(letter.deliveries))
    section.row("Message exists", {None: "not known", True: "true", False: "false"}[letter.exists])
    section.maybe("Copied", {None: "", True: "true", False: "false"}[letter.copied])
    advisories = page.section("Advisories")
    for advisory in letter.advisories:
        advisories.row(when(advisory.time), f"{safe(advisory.reason)}, {plural(advisory.deliveries, 'attempt')}")
    return page


def server_page(answer: ServerAnswer) -> Page:
    from natsctl.cli.render.servers import render_server

    return render_server(answer)


def explanation(reasons: Explanation) -> Page:
    from natsctl.cli.explain import explanation_page

    return explanation_page(reasons)


def _without(page: Page, state: Page) -> Page:
    """Return a page without the sections that another page has."""
    titles = {section.title for section in state.sections if section.title}
    page.sections = [section for section in page.sections if section.title not in titles]
    return page


def message_heading(message: ArchivedMessage, stream: str) -> str:
    subject = safe(message.subject.decode("utf-8", "backslashreplace"))
    lines = [
        f"{safe(stream)} {count(message.seq)}  {subject}",
        f"{stamp(message.ts_ns)}  {format_size(len(message.payload))}",
    ]
    for key, value in headers.parse(message.header):
        lines.append(f"{safe(key.decode('utf-8', 'replace'))}: {safe(value.decode('utf-8', 'backslashreplace'))}")
    return "\n".join(lines)


def message_line(message: ArchivedMessage) -> str:
    return safe(" ".join(message.payload[:256].decode("utf-8", "replace").split()))


def message_json(message: ArchivedMessage) -> Any:
    try:
        return json.loads(message.payload)
    except RecursionError as failure:
        raise ValueError("too deeply nested") from failure


def message_text(message: ArchivedMessage) -> str:
    return body_text(message.payload[:MAX_BODY]) + _rest(message)


def message_hex(message: ArchivedMessage, width: int) -> str:
    step = 16 if width >= 76 else 8
    lines = []
    for begin in range(0, min(len(message.payload), MAX_BODY // 4), step):
        part = message.payload[begin : begin + step]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in part)
        lines.append(f"{begin:06x}  {part.hex(' ', -8 if step == 16 else 1):<{3 * step}}  {shown}")
    return "\n".join(lines) + _rest(message, MAX_BODY // 4)


def _rest(message: ArchivedMessage, most: int = MAX_BODY) -> str:
    left = len(message.payload) - most
    return f"\n… {format_size(left)} more: natsctl stream get shows all" if left > 0 else ""
