"""The source's requests to JetStream: streams, consumers, and sequences of points in time.

The driver keeps one connection for as long as it holds, and opens another when it is lost.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from natsctl.spark.source.errors import (
    ApiRefusedError,
    NoResponseError,
    SourceConnectionLostError,
    SourceNotAuthorisedError,
    StreamNotFoundError,
)
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.link import Link, Reply
from natsctl.spark.source.outages import Outage

NO_STREAM: Final = 10059
NO_CONSUMER: Final = 10014
NO_MESSAGE: Final = 10037
UNAVAILABLE: Final = (10008, 10118, 10119)
"""JetStream, a stream or a consumer is offline, as when a cluster has no leader: an outage, not a refusal."""

ONE_SHOT: Final = {
    "ack_policy": "none",
    "max_deliver": 1,
    "mem_storage": True,
    "num_replicas": 1,
    "replay_policy": "instant",
    "inactive_threshold": 30_000_000_000,
}
"""A consumer that only reads: nothing is acknowledged, and it goes by itself should its reader die."""

_ASKS_FOR_BLOCKS: Final = b"NATS/1.0\r\nNats-Stream-Blocks: 1\r\n\r\n"
DIRECT_HEADERS: Final = (b"Nats-Sequence", b"Nats-Subject", b"Nats-Time-Stamp")


class StoredPosition(NamedTuple):
    seq: int
    subject: str
    time_ns: int


class BlockOffer(NamedTuple):
    """Header of STREAM.INFO for a stream with readable blocks: their format and the stream's identity."""

    format: bytes
    identity: bytes


class JetStreamApi:
    """Requests to JetStream over one connection; refusals are raised as ApiRefusedError with the contract's number."""

    def __init__(self, link: Link, settings: ServerSettings) -> None:
        self._link = link
        self._prefix = settings.api_prefix

    @property
    def link(self) -> Link:
        return self._link

    def subject(self, name: str) -> str:
        """Return the whole subject of a request such as STREAM.INFO.ORDERS, with the prefix of a domain or import."""
        return f"{self._prefix}.{name}"

    def ask(self, name: str, body: dict[str, Any] | None = None, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Return the answer to a request of the JetStream API; asked once more where the connection is lost meanwhile.

        Raises ApiRefusedError, StreamNotFoundError, SourceNotAuthorisedError, ServerUnreachableError.
        """
        return self._asked(name, json.dumps(body).encode() if body is not None else b"", b"", timeout_s)[0]

    def _asked(
        self, name: str, data: bytes, headers: bytes, timeout_s: float | None = None
    ) -> tuple[dict[str, Any], bytes]:
        """Return the same, with the headers of the answer."""
        try:
            reply = self._link.request(self.subject(name), data, timeout_s=timeout_s, headers=headers)
        except SourceConnectionLostError:
            self._link.reopen()
            reply = self._link.request(self.subject(name), data, timeout_s=timeout_s, headers=headers)
        if reply.status == 503:
            raise NoResponseError(
                f"JetStream does not answer on {self.subject(name)}: it is off there, or the prefix is wrong"
            )
        answer = object_in(reply.body, name)
        if error := answer.get("error"):
            refuse(name, error)
        return answer, reply.headers

    def stream_and_blocks(self, stream: str) -> tuple[dict[str, Any], BlockOffer | None]:
        """Return a stream's configuration and state, and whether its blocks can be read. Raises StreamNotFoundError."""
        answer, headers = self._asked(f"STREAM.INFO.{stream}", b"", _ASKS_FOR_BLOCKS)
        form, identity = (header_of(headers, name) for name in (b"Nats-Stream-Blocks", b"Nats-Stream-Identity"))
        return answer, BlockOffer(form, identity) if form else None

    def stream_info(self, stream: str, *, subjects_filter: str = "", deleted_details: bool = False) -> dict[str, Any]:
        """Return a stream's configuration and state, with counts by subject if a filter is given (all pages).

        With `deleted_details` its state has the sequences of deleted messages. Raises StreamNotFoundError.
        """
        body: dict[str, Any] = {"subjects_filter": subjects_filter} if subjects_filter else {}
        if deleted_details:
            body["deleted_details"] = True
        answer = self.ask(f"STREAM.INFO.{stream}", body or None)
        subjects: dict[str, int] = answer["state"].get("subjects") or {}
        while subjects_filter and len(subjects) < answer.get("total", 0):
            page = self.ask(f"STREAM.INFO.{stream}", {**body, "offset": len(subjects)})
            more = page["state"].get("subjects") or {}
            if not more:
                break
            subjects.update(more)
        return answer

    def stream_names(self, subject: str = "") -> list[str]:
        """Return the names of all streams, or of streams that capture a subject, in the server's order."""
        names: list[str] = []
        while True:
            body = {"offset": len(names), **({"subject": subject} if subject else {})}
            page = self.ask("STREAM.NAMES", body)
            names += page.get("streams") or []
            if len(names) >= page.get("total", 0) or not page.get("streams"):
                return names

    def create_consumer(self, stream: str, name: str, config: dict[str, Any]) -> dict[str, Any]:
        """Create a consumer, ephemeral unless the configuration names a durable; the answer has the pending count."""
        filters = config.get("filter_subjects") or []
        if len(filters) == 1:  # the one way that servers before 2.10 know, and the one with a subject for permissions
            config = {**config, "filter_subject": filters[0]}
            del config["filter_subjects"]
        tail = f".{filters[0]}" if len(filters) == 1 else ""
        body = {"stream_name": stream, "config": {**config, "name": name}, "action": "create"}
        return self.ask(f"CONSUMER.CREATE.{stream}.{name}{tail}", body)

    def delete_consumer(self, stream: str, name: str) -> bool:
        """Delete a consumer; return False if it was already deleted."""
        try:
            self.ask(f"CONSUMER.DELETE.{stream}.{name}")
        except ApiRefusedError as refusal:
            if refusal.err_code == NO_CONSUMER:
                return False
            raise
        except StreamNotFoundError:
            return False
        return True

    def message(self, stream: str, wanted: dict[str, Any]) -> StoredPosition | None:
        """Return one stored message, by `seq`, `start_time` and `next_by_subj`, or None.

        Asks the leader, or if that is not permitted any server that answers direct gets.
        """
        try:
            answer = self.ask(f"STREAM.MSG.GET.{stream}", wanted)
        except ApiRefusedError as refusal:
            if refusal.err_code == NO_MESSAGE:
                return None
            raise
        except SourceNotAuthorisedError:
            reply = self._link.request(self.subject(f"DIRECT.GET.{stream}"), json.dumps(wanted).encode())
            if reply.status == 503 or (reply.status == 0 and not _is_of(stream, reply)):
                raise
            return _from_headers(reply) if reply.status == 0 else None
        message = answer["message"]
        return StoredPosition(int(message["seq"]), message["subject"], time_ns_of(message["time"]))

    def sequence_at(self, stream: str, time_ns: int, filters: Sequence[str] = ()) -> int:
        """Return the first sequence stored at or after a moment (on `filters`), or last + 1."""
        found = [seq for each in filters or (">",) if (seq := self._first_since(stream, time_ns, each))]
        return min(found) if found else self._state(stream)["last_seq"] + 1

    def counted(self, stream: str, first: int, filters: Sequence[str] = ()) -> int:
        """Return the number of messages from a sequence on, of those on `filters`.

        Uses direct gets, or a temporary consumer; raises ApiRefusedError, SourceNotAuthorisedError
        where neither is allowed.
        """
        counted = [self._pending_directly(stream, first, each) for each in filters or (">",)]
        if None not in counted:
            return sum(each for each in counted if each is not None)
        return self._pending_of_consumer(stream, first, filters)

    def pending(self, stream: str, first: int, filters: Sequence[str] = ()) -> int:
        """Return the same, or if counting is not permitted the number of sequences, an upper bound."""
        try:
            return self.counted(stream, first, filters)
        except (ApiRefusedError, SourceNotAuthorisedError):
            state = self._state(stream)
            return int(min(max(state["last_seq"] - max(first, state["first_seq"]) + 1, 0), state["messages"]))

    def _first_since(self, stream: str, time_ns: int, pattern: str) -> int:
        """Return the first sequence at or after a moment on a subject; 0 without one.

        One request; servers before 2.11 pass the time over and return their first message, and are asked by halves.
        """
        found = self.message(stream, {"start_time": rfc3339(time_ns), "next_by_subj": pattern})
        if found is None or found.time_ns >= time_ns:
            return found.seq if found else 0
        low, high = found.seq + 1, self._state(stream)["last_seq"] + 1
        since = 0
        while low < high:
            middle = (low + high) // 2
            found = self.message(stream, {"seq": middle, "next_by_subj": pattern})
            if found is None or found.time_ns >= time_ns:
                since, high = (found.seq if found else since), middle
            else:
                low = found.seq + 1
        return since

    def _pending_directly(self, stream: str, first: int, pattern: str) -> int | None:
        """Return the count that a direct get reports; None if it is forbidden, or from an old server or a mirror.

        A server without matches does not give its name, and may be a mirror or lag: then the leader is asked.
        """
        body = {"seq": max(first, 1), "next_by_subj": pattern, "batch": 1}
        try:
            reply = self._link.request(self.subject(f"DIRECT.GET.{stream}"), json.dumps(body).encode())
        except SourceNotAuthorisedError:
            return None
        if reply.status == 404:
            return 0 if self.message(stream, {"seq": body["seq"], "next_by_subj": pattern}) is None else None
        if not _is_of(stream, reply):
            return None
        pending = header_of(reply.headers, b"Nats-Num-Pending") if reply.status == 0 else b""
        return int(pending) + 1 if pending.isdigit() else None

    def _pending_of_consumer(self, stream: str, first: int, filters: Sequence[str]) -> int:
        """Return the count that a consumer has to deliver; it is deleted at once."""
        name = f"natsctl-spark-{secrets.token_hex(6)}"
        where = {"deliver_policy": "by_start_sequence", "opt_start_seq": max(first, 1)}
        config = {**ONE_SHOT, **where, **({"filter_subjects": list(filters)} if filters else {})}
        try:
            return int(self.create_consumer(stream, name, config)["num_pending"])
        finally:
            self.delete_consumer(stream, name)

    def _state(self, stream: str) -> dict[str, Any]:
        state: dict[str, Any] = self.stream_info(stream)["state"]
        return state


def header_of(headers: bytes, name: bytes) -> bytes:
    """Return the last value of a header in a block (the server's own if it sets that name), or ""."""
    position = headers.rfind(b"\r\n" + name + b": ")
    if position < 0:
        return b""
    begin = position + len(name) + 4
    return headers[begin : headers.index(b"\r\n", begin)]


def check_origin(stream: bytes, headers: bytes) -> None:
    """Raise ApiRefusedError for a direct get's answer that is not of the stream that was asked."""
    if (origin := header_of(headers, b"Nats-Stream")) != stream:
        raise ApiRefusedError(
            f"direct gets of {stream.decode()} are answered by {origin.decode()}, a mirror that may not have the same "
            "messages: read with transport=consumer or get"
        )


def time_ns_of(text: str) -> int:
    """Nanoseconds since 1970 of a time as JetStream writes it (2026-11-21T03:38:08.293843492Z)."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
    return seconds * 1_000_000_000 + int(fraction.ljust(9, "0")[:9] or 0)


def rfc3339(time_ns: int) -> str:
    seconds, fraction = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"


def _is_of(stream: str, reply: Reply) -> bool:
    """Return whether a message comes from the stream itself, not from a mirror that answers in its place."""
    return header_of(reply.headers, b"Nats-Stream") == stream.encode()


def _from_headers(reply: Reply) -> StoredPosition:
    sequence, subject, stamp = (header_of(reply.headers, name) for name in DIRECT_HEADERS)
    return StoredPosition(int(sequence), subject.decode(), time_ns_of(stamp.decode()))


def object_in(body: bytes, name: str) -> dict[str, Any]:
    """Return the JSON object of an answer. Raises ApiRefusedError if it is not one, or its error is not."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("error") or {}, dict):
        raise ApiRefusedError(f"{name}: the answer is not understood: {body[:64]!r}", 0)
    return answer


def refuse(name: str, error: dict[str, Any]) -> NoReturn:
    code, text = error.get("err_code"), str(error.get("description") or "")
    code = code if isinstance(code, int) else 0
    if code in UNAVAILABLE:
        raise NoResponseError(f"{name}: {text} (error {code})")
    if code == NO_STREAM:
        raise StreamNotFoundError(f"{name}: {text}")
    raise ApiRefusedError(f"{name}: {text} (error {code})", code)


Answer = TypeVar("Answer")


class Asking:
    """Questions to JetStream, asked again where the connection was lost or no answer came; pickled unconnected.

    With `resolve` an unknown host name fails the first question, as it is likely misspelled. Later, and in tasks, it is
    waited for: in Kubernetes the name of a service without a running pod is unknown.
    """

    def __init__(self, settings: ServerSettings, *, resolve: bool = False) -> None:
        self.settings = settings
        self._link: Link | None = None
        self._resolve = resolve

    def __call__(self, question: Callable[[JetStreamApi], Answer]) -> Answer:
        """Return the question's answer; it may be asked more than once."""
        outage = Outage(self.settings)
        while True:
            try:
                answer = question(self._api())
            except (SourceConnectionLostError, NoResponseError) as failure:
                self.close()
                outage.pause(failure)
            else:
                outage.end()
                return answer

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings, "_link": None, "_resolve": False}

    def _api(self) -> JetStreamApi:
        if self._link is None:
            self._link = Link.open(self.settings, resolve=self._resolve)
            self._resolve = False
        return JetStreamApi(self._link, self.settings)
