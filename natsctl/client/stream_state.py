"""State of a stream beyond its information: effect of a purge, sequence at a time, gaps, progress of its consumers.

Counting messages of a subject below a sequence is a direct get's by-product (it says how many are still to come), so
if a stream allows no direct gets only an upper bound is known.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from natsctl.api import codec, endpoints
from natsctl.api.answers import StreamInfoAnswer, StreamMsgGetAnswer
from natsctl.api.errors import ApiResponseError, UnreachableError
from natsctl.api.requests import StoredMsg
from natsctl.api.times import parse_time
from natsctl.client.manager import Manager
from natsctl.client.requests import Answer, not_understood, together

ALL = ">"
_NOT_FOUND = 404


class Purge(NamedTuple):
    """Request of a purge: messages of a subject ("" for all), below a sequence, or all but the newest."""

    filter: str = ""
    seq: int = 0
    keep: int = 0

    @property
    def is_whole(self) -> bool:
        """Return whether all messages are to be removed."""
        return self == Purge()


class PurgeEffect(NamedTuple):
    """Messages that a purge removes (`at_most` if only a bound is known), their sequences, and their bytes.

    Bytes are an estimate by number unless everything goes; sequences are 0 if they are not known.
    """

    messages: int
    at_most: bool
    first_seq: int
    last_seq: int
    bytes: int

    def document(self) -> dict[str, Any]:
        """Return the effect as a dry run reports it."""
        found: dict[str, Any] = {"messages_at_most" if self.at_most else "messages": self.messages}
        if self.messages:
            sequences = {"first_seq": self.first_seq, "last_seq": self.last_seq}
            found |= {name: seq for name, seq in sequences.items() if seq} | {"bytes_about": self.bytes}
        return found


async def purge_effect(manager: Manager, live: Answer[StreamInfoAnswer], purge: Purge) -> PurgeEffect:
    state = live.value.state
    stream = live.value.config.name
    total = await _count(manager, stream, purge.filter) if purge.filter else state.messages
    gone, at_most = total, False
    if purge.keep:
        gone = max(0, total - purge.keep)
    elif purge.seq and purge.seq <= state.last_seq:
        left = await count_from(manager, stream, purge.filter or ALL, purge.seq)
        if left is not None:
            gone = max(0, total - left)
        elif not purge.filter:
            gone = await _below(manager, live, purge.seq)
        else:
            at_most = True
    first, last = await _ends(manager, live, purge, gone) if gone else (0, 0)
    size = state.bytes * gone // state.messages if state.messages else 0
    return PurgeEffect(gone, at_most, first, last, size)


async def _count(manager: Manager, stream: str, subject: str) -> int:
    """Return the number of messages on a subject, possibly with wildcards."""
    answer = await manager.stream_info(stream, subjects_filter=subject)
    return sum((answer.value.state.subjects or {}).values())


async def count_from(manager: Manager, stream: str, subject: str, seq: int) -> int | None:
    """Return how many messages on `subject` begin at `seq`; None if the stream allows no direct gets."""
    connection = manager.connection
    target = endpoints.DIRECT_GET.subject(stream, prefix=connection.target.api_prefix)
    body = codec.encode({"seq": seq, "next_by_subj": subject, "batch": 1})
    connection.trace(target, body)
    message = await connection.request(target, body)
    if message.status == _NOT_FOUND:
        return 0
    pending = str(message.headers.get("Nats-Num-Pending", ""))
    return int(pending) + 1 if pending.isdigit() and not message.status else None


async def _below(manager: Manager, live: Answer[StreamInfoAnswer], seq: int) -> int:
    state = live.value.state
    deleted: list[int] = []
    if state.num_deleted:
        deleted = (await manager.stream_info(live.value.config.name, deleted_details=True)).value.state.deleted or []
    return max(0, seq - state.first_seq - bisect_left(deleted, seq))


async def _ends(manager: Manager, live: Answer[StreamInfoAnswer], purge: Purge, gone: int) -> tuple[int, int]:
    """Return the sequences of the first and the last message that go, 0 for one that is not known."""
    state, stream = live.value.state, live.value.config.name
    first = state.first_seq
    if purge.filter and (message := await next_message(manager, stream, 1, purge.filter)):
        first = message.seq
    if gone == 1:
        return first, first
    if purge.seq and purge.seq <= state.last_seq:
        return first, 0 if state.num_deleted or purge.filter else purge.seq - 1
    if purge.keep:
        return first, 0 if state.num_deleted or purge.filter else state.last_seq - purge.keep
    if purge.filter:
        return first, (await manager.message_get(stream, last_by_subj=purge.filter)).value.message.seq
    return first, state.last_seq


async def next_answer(manager: Manager, stream: str, seq: int, subject: str = ALL) -> Answer[StreamMsgGetAnswer] | None:
    """Return the first message on `subject` from `seq` on as the server sent it, or None."""
    answer = await manager.find_message(stream, seq=max(1, seq), next_by_subj=subject)
    if answer is not None and answer.value.message.seq < max(1, seq):  # whoever reads on from there would never end
        raise not_understood(answer.subject, f"message {answer.value.message.seq} is not at or after {seq}")
    return answer


async def next_message(manager: Manager, stream: str, seq: int, subject: str = ALL) -> StoredMsg | None:
    answer = await next_answer(manager, stream, seq, subject)
    return answer.value.message if answer is not None else None


async def sequence_at(manager: Manager, live: Answer[StreamInfoAnswer], moment_ns: int) -> int:
    """Return the lowest sequence such that every message from it on was stored at that moment or later.

    One past the end if none.

    Messages are stored in the order of time, so it is searched by halves: about 20 requests in a million messages.
    """
    state, stream = live.value.state, live.value.config.name
    low, high = max(1, state.first_seq), state.last_seq + 1
    while low < high:
        middle = (low + high) // 2
        message = await next_message(manager, stream, middle)
        if message is None or parse_time(message.time) >= moment_ns:
            high = middle
        else:
            low = message.seq + 1
    return low


Gap = tuple[int, int]
"""First and last sequence of a range that is missing, both included."""


def is_complete(live: Answer[StreamInfoAnswer]) -> bool:
    """Return whether the answer names every sequence that is missing; servers cut long lists."""
    state = live.value.state
    return len(state.deleted or ()) >= state.num_deleted


def ranges(deleted: Iterable[int]) -> list[Gap]:
    """Return ascending sequences as ranges; a 0 (from nats-server for an empty stream) is ignored."""
    found: list[Gap] = []
    for seq in filter(None, deleted):
        if found and found[-1][1] + 1 == seq:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found


async def walk_gaps(manager: Manager, live: Answer[StreamInfoAnswer], at: Callable[[int], None]) -> list[Gap]:
    """Return the gaps, found by reading the headers of every message; `at` is called with the number read."""
    from natsctl.client.messaging.consumers import OrderedReader

    state = live.value.state
    found: list[Gap] = []
    expected, read = state.first_seq, 0
    async with OrderedReader(manager, live.value.config.name, ALL, headers_only=True) as reader:
        async for delivered in reader.stored():
            seq = delivered.at.stream_seq
            if seq > expected:
                found.append((expected, seq - 1))
            expected, read = seq + 1, read + 1
            at(read)
            if seq >= state.last_seq:
                break
    if expected <= state.last_seq:
        found.append((expected, state.last_seq))
    return found


class LiveProgress(NamedTuple):
    """The consumers of a stream, and how many messages that has."""

    stream: str
    messages: int
    infos: Sequence[Answer[Any]]
    missing: Sequence[str] = ()
    """Consumers with leaders that do not answer."""


async def progress(manager: Manager, stream: str) -> LiveProgress:
    """Return the progress of all consumers; both requests go at once.

    Consumers that elect a leader while they are listed are asked for one by one.
    """
    asked: list[Any] = [manager.stream_info(stream), manager.consumer_list(stream)]
    of, consumers = await together(manager.connection, *asked)
    infos: list[Answer[Any]] = list(consumers)
    missing: list[str] = []
    for name in [*(consumers.raw.get("missing") or ()), *(consumers.raw.get("offline") or ())]:
        try:
            infos.append(await manager.consumer_info(stream, name))
        except (ApiResponseError, UnreachableError):
            missing.append(name)
    return LiveProgress(stream, int(of.raw["state"]["messages"]), infos, missing)
