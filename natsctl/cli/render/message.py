"""Messages and their traces as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from natsctl.api.units import plural
from natsctl.cli.render.text import count, duration, safe
from natsctl.cli.render.text import stamp as local_stamp
from natsctl.hints import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from natsctl.api.acks import AckSubject
    from natsctl.api.requests import PubAck
    from natsctl.client.messaging.message_trace import TraceContext, TraceReport


class ReceivedMessage(NamedTuple):
    """A received message and its time of arrival (ns since the epoch)."""

    subject: str
    reply: str
    headers: Sequence[tuple[str, str]]
    payload: bytes
    at_ns: int

    @property
    def delivery(self) -> AckSubject | None:
        """Return the message's position in its stream, and in its consumer if no direct get delivered it."""
        if self.reply:
            from natsctl.api import acks

            return acks.parse(self.reply.encode("utf-8", "surrogateescape"))
        return _direct(dict(self.headers)) if self.headers else None


def _direct(headers: dict[str, str]) -> AckSubject | None:
    """Return the position of a message by the headers of a direct get, without a consumer."""
    from natsctl.api.times import parse_time

    try:
        seq, ts_ns = int(headers["Nats-Sequence"]), parse_time(headers["Nats-Time-Stamp"])
        from natsctl.api.acks import AckSubject

        return AckSubject(
            headers["Nats-Stream"].encode(), b"", 0, seq, 0, ts_ns, int(headers.get("Nats-Num-Pending", "0"))
        )
    except (KeyError, ValueError):
        return None


def render_received(number: int, message: ReceivedMessage, stamp: str = "") -> str:
    """Return the line above a message that a subscription received; `stamp` is the time of arrival."""
    head = f"[#{number}]{f' @ {stamp}' if stamp else ''} Received"
    delivery = message.delivery
    if delivery is None:
        return f'{head} on "{safe(message.subject)}"' + (
            f' with reply "{safe(message.reply)}"' if message.reply else ""
        )
    stream, seq = f"stream: {safe(_text(delivery.stream))}", count(delivery.stream_seq)
    stored = f" / time: {local_stamp(delivery.ts_ns)}" if delivery.ts_ns else ""
    rest = f"subject: {safe(message.subject)}{stored}"
    if not delivery.consumer:
        return f"{head} JetStream message (direct): {stream} seq {delivery.stream_seq} / {rest}"
    return f"{head} JetStream message: {stream} seq: {seq} / pending: {count(delivery.pending)} / {rest}"


def render_next(message: ReceivedMessage) -> str:
    line = f"--- received on {safe(message.subject)}"
    delivery = message.delivery
    if delivery is None:
        return line
    return (
        f"{line} / tries: {count(delivery.delivered)} / cons seq: {count(delivery.consumer_seq)}"
        f" / str seq: {count(delivery.stream_seq)} / pending: {count(delivery.pending)}"
    )


def render_headers(headers: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{safe(key)}: {safe(value)}" for key, value in headers]


def message_document(message: ReceivedMessage) -> dict[str, Any]:
    """Return the message as data: `data` in base64, `text` if the body is UTF-8, stream facts if a consumer sent it."""
    import base64

    from natsctl.api.times import format_time

    document: dict[str, Any] = {"subject": message.subject}
    if message.reply:
        document["reply"] = message.reply
    if message.headers:
        document["headers"] = _by_name(message.headers)
    document["data"] = base64.b64encode(message.payload).decode()
    text = _utf8(message.payload)
    if text is not None:
        document["text"] = text
    document["received"] = format_time(message.at_ns)
    delivery = message.delivery
    if delivery is not None:
        document |= _delivery_document(delivery)
    return document


def _delivery_document(delivery: AckSubject) -> dict[str, Any]:
    from natsctl.api.times import format_time

    consumer = {
        "consumer": _text(delivery.consumer),
        "consumer_seq": delivery.consumer_seq,
        "deliveries": delivery.delivered,
    }
    return {
        "stream": _text(delivery.stream),
        "stream_seq": delivery.stream_seq,
        **(consumer if delivery.consumer else {}),
        "pending": delivery.pending,
        "time": format_time(delivery.ts_ns),
    }


def answer_document(message: ReceivedMessage, rtt_ns: int, status: int, description: str) -> dict[str, Any]:
    """Return the answer to a request as data, with the ns it took and the status of a status message."""
    document = {**message_document(message), "rtt": rtt_ns}
    if status:
        document |= {"status": status, "description": description}
    return document


def _by_name(headers: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    named: dict[str, list[str]] = {}
    for key, value in headers:
        named.setdefault(key, []).append(value)
    return named


def _utf8(payload: bytes) -> str | None:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None


def _text(token: bytes) -> str:
    return token.decode("utf-8", "backslashreplace")


def render_ack(ack: PubAck) -> str:
    parts = [f"Stored in Stream: {safe(ack.stream)}", f"Sequence: {ack.seq}"]
    if ack.batch:
        parts.append(f"Batch: {plural(ack.count, 'message')}")
    if ack.domain:
        parts.append(f'Domain: "{safe(ack.domain)}"')
    if ack.duplicate:
        parts.append("Duplicate: true")
    if ack.val:
        parts.append(f"Counter Value: {safe(ack.val)}")
    return " ".join(parts)


def render_rtt(ns: int) -> str:
    return f"Received with rtt {duration(ns)}"


ERROR = "✗"
_ONWARD, _LAST = "├─ ", "└─ "
_BESIDE, _BELOW = "│  ", "   "


def render_trace(report: TraceReport, *, stamped: bool) -> str:
    """Return the tree, and the number of receivers by kind; `stamped` shows the delay since the message's arrival."""
    lines = [*_context(report.context), *_server(report, "", next((_ns(event) for event in report.events), 0), stamped)]
    counts = Counter(label for one in report.walk() for label in _taken(one))
    total = ", ".join(f"{label} {number}" for label, number in sorted(counts.items()))
    lines += ["", f"Delivered to: {total}" if counts else "No subscriber or stream takes messages on this subject"]
    return "\n".join(lines)


def _context(context: TraceContext | None) -> Iterator[str]:
    if context is not None:
        sampled = "sampled" if context.sampled else "not sampled"
        yield f"OpenTelemetry trace {context.trace}, span {context.span}, {sampled}"


def _server(report: TraceReport, indent: str, began_ns: int, stamped: bool) -> Iterator[str]:
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
    without = ", without interest" if event.get("nointerest") else ""
    stream = _word(event, "stream") or "a Stream"
    return f"to JetStream: {stream} stores it as {_word(event, 'subject')}{without}"


_EVENTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "in": _ingress,
    "eg": _egress,
    "js": _stored,
    "sm": lambda event: f"mapped to {_word(event, 'to')}",
    "se": lambda event: f"exported to account {_word(event, 'acc')} as {_word(event, 'to')}",
    "si": lambda event: f"service of account {_word(event, 'acc')}: {_word(event, 'from')} to {_word(event, 'to')}",
}


def _who(event: dict[str, Any]) -> str:
    from natsctl.client.messaging.message_trace import CONNECTIONS

    label = CONNECTIONS.get(event.get("kind", 0), "connection")
    name = f' "{_word(event, "name")}"' if event.get("name") else ""
    return f"{label}{name} cid {event.get('cid', '?')}"


def _word(event: dict[str, Any], key: str) -> str:
    return safe(str(event.get(key) or ""))


def _taken(report: TraceReport) -> Iterator[str]:
    from natsctl.client.messaging.message_trace import CONNECTIONS

    for event in report.events:
        if event.get("error"):
            continue
        if event.get("type") == "js":
            yield CONNECTIONS[5]
        elif event.get("type") == "eg":
            yield CONNECTIONS.get(event.get("kind", 0), "other")


def _ns(event: dict[str, Any]) -> int:
    from natsctl.api.times import parse_time

    try:
        return parse_time(str(event.get("ts", "")))
    except ValueError:
        return 0


def _after(event: dict[str, Any], began_ns: int) -> str:
    at_ns = _ns(event)
    return f"[+{duration(max(0, at_ns - began_ns))}]" if at_ns else ""
