"""What the commands about messages and events print with -j."""

from __future__ import annotations

from typing import Any

from msgspec import field

from natsctl.api.model import Duration, Model, Time


class Message(Model, kw_only=True):
    """A message: `data` in base64, `text` where it is UTF-8; with what a stream or consumer says of it."""

    subject: str
    data: str
    received: Time
    reply: str = ""
    headers: dict[str, list[str]] = field(default_factory=dict)
    text: str | None = None
    stream: str = ""
    stream_seq: int = 0
    consumer: str = ""
    consumer_seq: int = 0
    deliveries: int = 0
    pending: int = 0
    time: Time = ""


class Response(Message, kw_only=True):
    """An answer to a request, how long it took, and the status of one that has a status."""

    rtt: Duration
    status: int = 0
    description: str = ""


class Answered(Message, kw_only=True):
    """A request, and whether it was answered; `failure` says why not."""

    answered: bool
    failure: str = ""


class Published(Model, kw_only=True):
    """What was published to a subject; no stream was asked for an ack."""

    subject: str
    published: int
    bytes: int


class Counted(Model, kw_only=True):
    """The messages of a subject or subscription."""

    subject: str
    messages: int
    bytes: int


class Traced(Model, kw_only=True):
    """What the servers told of a message on its way: their events, as they sent them."""

    subject: str
    delivered: bool
    traces: list[dict[str, Any]]


class Happened(Model, kw_only=True):
    """An advisory, a metric or another event, as the server sent it; `natsctl schema ls advisory` has their kinds."""

    type: str = ""
    id: str = ""
    timestamp: Time = ""


class CloudEvent(Model, kw_only=True):
    """An event in the envelope of CloudEvents 1.0; `id` and `time` are null where the event has none."""

    type: str
    time: str | None
    id: str | None
    source: str
    dataschema: str
    specversion: str
    subject: str
    data: dict[str, Any]
