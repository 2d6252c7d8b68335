"""A durable consumer that a query reads through: pulled on the driver, acknowledged when Spark is done with a batch.

Theory of operation. Messages of a pull belong to the query until they are acknowledged, or until the consumer's ack
wait is over: then the server delivers them again, to this reader or to another. A thread with connections of its own
therefore reports messages of a running batch as in progress, three times within each ack wait. Ack subjects carry all
that the server needs, so any connection may send them.

An account that exports only the consumer does not answer CONSUMER.INFO. Then only its deliveries are known, and the
shortest usual ack wait is assumed.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from natsctl.spark.source.errors import (
    ApiRefusedError,
    ConsumerUnfitError,
    JetStreamSourceError,
    NoResponseError,
    SourceConnectionLostError,
    SourceNotAuthorisedError,
    StreamNotFoundError,
)
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import NO_CONSUMER, Asking, JetStreamApi
from natsctl.spark.source.link import Link, Message, delivered, description_of, read_frames, status_of

ACK: Final = b"+ACK"
NAK: Final = b"-NAK"
WORKING: Final = b"+WPI"

WAIT_S: Final = 1.0
"""Expiry of a pull: an empty server is asked once a second, a busy one has time to answer."""
ASSUMED_ACK_WAIT_S: Final = 15.0
"""Assumed ack wait of a consumer with an unreadable configuration; the server's default is 30 s."""
BEATS: Final = 3
"""The number of times within an ack wait that a batch is reported as in progress."""
CHUNK: Final = 2_000
"""Acknowledgements that are sent at once: about 200 KB."""
NEW_ACK_WAIT_S: Final = 60
NEW_MAX_ACK_PENDING: Final = 100_000
"""max_ack_pending of a durable that the source creates; the server's default of 1,000 would limit each batch."""
_MARK: Final = {"natsctl.spark": "is read by queries"}
TIMED_OUT: Final = 408
_TOO_LARGE: Final = "Message Size Exceeds MaxBytes"
_MOVED: Final = ("leadership change", "server shutdown")
_log = logging.getLogger("pyspark_jetstream")


class Delivery(NamedTuple):
    """One message as the consumer delivered it."""

    seq: int
    reply: bytes
    again: bool
    sid: bytes
    """The subscription of its pull, as in the frame."""
    frame: bytes


@dataclass(frozen=True)
class About:
    """The parts of a consumer's configuration that reading depends on; `created` is "" if not visible."""

    created: str = ""
    ack_wait_s: float = ASSUMED_ACK_WAIT_S
    max_batch: int = 0
    max_bytes: int = 0
    max_expires_s: float = 0.0


@dataclass(frozen=True)
class Durable:
    """The consumer `name` of `stream`; with `create` it is created for `filters` if missing."""

    stream: str
    name: str
    create: bool = False
    filters: tuple[str, ...] = ()

    def about(self, api: JetStreamApi) -> About:
        """Return the consumer's facts. Raises ConsumerUnfitError for one that takes no acknowledgements."""
        try:
            found = api.ask(f"CONSUMER.INFO.{self.stream}.{self.name}")
        except (SourceNotAuthorisedError, NoResponseError):
            return About()
        except ApiRefusedError as refusal:
            if refusal.err_code != NO_CONSUMER:
                raise
            if not self.create:
                raise ConsumerUnfitError(
                    f"{self.stream} has no consumer {self.name}: make it, as with `natsctl consumer add {self.stream} "
                    f"{self.name} --pull --ack explicit`, or set createConsumer=true"
                ) from None
            found = self._made(api)
        self._check(found["config"])
        return _about(found)

    def status(self, api: JetStreamApi) -> dict[str, Any] | None:
        """Return CONSUMER.INFO's answer, or None if not visible."""
        try:
            return api.ask(f"CONSUMER.INFO.{self.stream}.{self.name}")
        except (ApiRefusedError, SourceNotAuthorisedError, NoResponseError, StreamNotFoundError):
            return None

    def pull(self, api: JetStreamApi, about: About, most: int, most_bytes: int) -> tuple[list[Delivery], bool]:
        """Return the messages of one pull, and whether the consumer may have more immediately.

        Raises ConsumerUnfitError if there is none; SourceConnectionLostError and NoResponseError to ask again.
        """
        link = api.link
        inbox = link.new_inbox()
        sid = link.subscribe(inbox)
        wanted = min(most, about.max_batch or most)
        wait_s = min(WAIT_S, about.max_expires_s or WAIT_S)
        body: dict[str, Any] = {"batch": wanted, "no_wait": True, "expires": int(wait_s * 1e9)}
        if most_bytes:
            body["max_bytes"] = min(most_bytes, about.max_bytes or most_bytes)
        text = json.dumps(body)
        subject = api.subject(f"CONSUMER.MSG.NEXT.{self.stream}.{self.name}")
        link.send(f"PUB {subject} {inbox} {len(text)}\r\n{text}\r\n".encode())
        try:
            found, status = self._answers(link, b"%d" % sid, wanted, wait_s)
        finally:
            link.unsubscribe(sid)
        if status is None:
            return found, True
        too_large = description_of(status.headers) == _TOO_LARGE
        if too_large and not found:
            return self.pull(api, about, 1, 0)
        # A pull that was still being served when its time was over has more to come.
        return found, too_large or (bool(found) and status_of(status.headers) == TIMED_OUT)

    def _answers(self, link: Link, sid: bytes, wanted: int, wait_s: float) -> tuple[list[Delivery], Message | None]:
        """Return the deliveries of a pull, and the status that ended it before it had all, if one did."""
        found: list[Delivery] = []
        data = b""
        while len(found) < wanted:
            data += link.read(wait_s + link.settings.timeout_s)
            at = 0
            for end, frame in read_frames(data):
                begin, at = at, end
                if not isinstance(frame, Message):
                    link.handle_line(frame)
                elif frame.sid == sid and not frame.reply:
                    self._heed(frame)
                    link.unread(data[at:])
                    return found, frame
                elif frame.sid == sid:
                    found.append(_delivery(frame, data[begin:at]))
                if len(found) == wanted:
                    break
            data = data[at:]
        link.unread(data)
        return found, None

    def _heed(self, status: Message) -> None:
        """Raise the error for a status other than the end of a pull."""
        code, text = status_of(status.headers), description_of(status.headers)
        if code in (404, TIMED_OUT) or text in (_TOO_LARGE, "Batch Completed"):
            return
        if code == 503:
            raise ConsumerUnfitError(
                f"no consumer {self.name} of {self.stream} answers: it does not exist, or is not exported to this "
                "account, or the option apiPrefix does not match its import"
            )
        if text.lower().startswith(_MOVED):
            raise SourceConnectionLostError(
                f"the consumer {self.name} of {self.stream} moves to another server: {text}"
            )
        raise ConsumerUnfitError(f"the consumer {self.name} of {self.stream} refuses a pull: {code} {text}")

    def _made(self, api: JetStreamApi) -> dict[str, Any]:
        config: dict[str, Any] = {
            "durable_name": self.name,
            "ack_policy": "explicit",
            "ack_wait": NEW_ACK_WAIT_S * 1_000_000_000,
            "max_ack_pending": NEW_MAX_ACK_PENDING,
            "metadata": _MARK,
        }
        if self.filters:
            config["filter_subjects"] = list(self.filters)
        return api.create_consumer(self.stream, self.name, config)

    def _check(self, config: dict[str, Any]) -> None:
        """Raise ConsumerUnfitError for a configuration that cannot be read with acknowledgement."""
        if config.get("deliver_subject"):
            raise ConsumerUnfitError(
                f"{self.name} of {self.stream} is a push consumer, and ackMode needs a pull consumer"
            )
        if config.get("ack_policy") != "explicit":
            policy = config.get("ack_policy")
            raise ConsumerUnfitError(
                f"{self.name} of {self.stream} has the ack policy {policy!r}, and ackMode needs 'explicit'"
            )
        one = config.get("filter_subject")
        filters = set(config.get("filter_subjects") or ([one] if one else []))
        if self.filters and filters != set(self.filters):
            raise ConsumerUnfitError(
                f"{self.name} of {self.stream} delivers {', '.join(sorted(filters)) or 'all subjects'}, and option "
                f"subject says {', '.join(self.filters)}: with ackMode the consumer chooses the subjects"
            )


class Receipts:
    """Messages that were delivered and are not acknowledged yet, kept in progress until they are."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = replace(settings, retries=0)
        self._held: Sequence[bytes] = ()
        self._every_s = ASSUMED_ACK_WAIT_S / BEATS
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, replies: Sequence[bytes], ack_wait_s: float) -> None:
        """Keep messages in progress, those of the batch before not any more."""
        with self._lock:
            self._held = replies
            self._every_s = ack_wait_s / BEATS
        if replies and self._thread is None:
            self._thread = threading.Thread(target=self._beat, name="natsctl-in-progress", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Release all messages, so that the server delivers them again when their ack wait is over."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._thread, self._held = None, ()

    def _beat(self) -> None:
        while not self._ended.wait(self._every_s):
            try:
                self._report()
            except JetStreamSourceError as failure:
                _log.warning("messages cannot be reported as in progress, and may be delivered again: %s", failure)

    def _report(self) -> None:
        with self._lock:
            held = self._held
        if held:
            with Link.open(self._settings) as link:
                publish_all(link, held, WORKING)


def publish_all(link: Link, subjects: Sequence[bytes], body: bytes) -> None:
    """Publish the same body on each subject; when this returns, the server has read them all."""
    tail = b" %d\r\n%b\r\n" % (len(body), body)
    for at in range(0, len(subjects), CHUNK):
        link.send(b"".join(b"PUB %b%b" % (subject, tail) for subject in subjects[at : at + CHUNK]))
    link.flush(link.settings.timeout_s)


def acknowledge(asking: Asking, replies: Sequence[bytes]) -> None:
    """Acknowledge messages; once more is nothing. Raises ServerUnreachableError after all retries."""
    asking(lambda api: publish_all(api.link, replies, ACK))


def _about(info: dict[str, Any]) -> About:
    config = info["config"]
    waits = config.get("backoff") or [config.get("ack_wait") or int(ASSUMED_ACK_WAIT_S * 1e9)]
    return About(
        created=str(info.get("created") or ""),
        ack_wait_s=min(waits) / 1e9,
        max_batch=max(config.get("max_batch") or 0, 0),
        max_bytes=max(config.get("max_bytes") or 0, 0),
        max_expires_s=(config.get("max_expires") or 0) / 1e9,
    )


def _delivery(message: Message, frame: bytes) -> Delivery:
    seq, again = delivered(message.reply)
    return Delivery(seq, message.reply, again, message.sid, frame)
