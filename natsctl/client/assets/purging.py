"""What a purge would take, found out without changing anything, and where in a stream a moment lies.

Counting messages of a subject below a sequence is a direct get's by-product (it says how many are still to come), so
where a stream allows no direct gets only an upper bound is known.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

from natsctl.api import codec, endpoints
from natsctl.api.err_codes import ErrCode
from natsctl.api.errors import ApiResponseError
from natsctl.api.times import parse_time

if TYPE_CHECKING:
    from natsctl.api.answers import StreamInfoAnswer, StreamMsgGetAnswer
    from natsctl.api.messages import StoredMsg
    from natsctl.client.answer import Answer
    from natsctl.client.manager import Manager

ALL = ">"
_NOT_FOUND = 404


class Purge(NamedTuple):
    """What is asked for: messages of a subject ("" for all), below a sequence, or all but the newest."""

    filter: str = ""
    seq: int = 0
    keep: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing shall stay."""
        return self == Purge()


class Effect(NamedTuple):
    """The number of messages that go (`at_most` where only a bound is known), between which sequences, and their bytes.

    Bytes are an estimate by number unless everything goes; sequences are 0 where they are not known.
    """

    messages: int
    at_most: bool
    first_seq: int
    last_seq: int
    bytes: int

    def document(self) -> dict[str, Any]:
        """The effect as a dry run tells it."""
        found: dict[str, Any] = {"messages_at_most" if self.at_most else "messages": self.messages}
        if self.messages:
            sequences = {"first_seq": self.first_seq, "last_seq": self.last_seq}
            found |= {name: seq for name, seq in sequences.items() if seq} | {"bytes_about": self.bytes}
        return found


async def purge_effect(manager: Manager, live: Answer[StreamInfoAnswer], purge: Purge) -> Effect:
    """What the purge of that stream would take now."""
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
    return Effect(gone, at_most, first, last, size)


async def _count(manager: Manager, stream: str, subject: str) -> int:
    """How many messages the stream has on a subject, which may have wildcards."""
    answer = await manager.stream_info(stream, subjects_filter=subject)
    return sum((answer.value.state.subjects or {}).values())


async def count_from(manager: Manager, stream: str, subject: str, seq: int) -> int | None:
    """How many messages on `subject` begin at `seq`; None where the stream allows no direct gets."""
    connection = manager.connection
    target = endpoints.DIRECT_GET.subject(stream, prefix=connection.target.api_prefix)
    body = codec.encode({"seq": seq, "next_by_subj": subject, "batch": 1})
    if connection.tracer is not None:
        connection.tracer.request(target, body)
    message = await connection.request(target, body)
    if message.status == _NOT_FOUND:
        return 0
    pending = str(message.headers.get("Nats-Num-Pending", ""))
    return int(pending) + 1 if pending.isdigit() and not message.status else None


async def _below(manager: Manager, live: Answer[StreamInfoAnswer], seq: int) -> int:
    """How many messages are below `seq`."""
    state = live.value.state
    deleted: list[int] = []
    if state.num_deleted:
        deleted = (await manager.stream_info(live.value.config.name, deleted_details=True)).value.state.deleted or []
    return max(0, seq - state.first_seq - bisect_left(deleted, seq))


async def _ends(manager: Manager, live: Answer[StreamInfoAnswer], purge: Purge, gone: int) -> tuple[int, int]:
    """The sequences of the first and the last message that go, 0 for one that is not known."""
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
    """The first message on `subject` from `seq` on as the server sent it, or None."""
    try:
        return await manager.message_get(stream, seq=max(1, seq), next_by_subj=subject)
    except ApiResponseError as failure:
        if failure.err_code != ErrCode.NO_MESSAGE_FOUND:
            raise
        return None


async def next_message(manager: Manager, stream: str, seq: int, subject: str = ALL) -> StoredMsg | None:
    """The first message on `subject` from `seq` on, or None."""
    answer = await next_answer(manager, stream, seq, subject)
    return answer.value.message if answer is not None else None


async def sequence_at(manager: Manager, live: Answer[StreamInfoAnswer], moment_ns: int) -> int:
    """The lowest sequence from which on every message was stored at that moment or later; one past the end if none.

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
