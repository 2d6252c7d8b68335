"""Facts of streams and consumers that explanations are made from, read without changing anything.

Nothing here creates a consumer: the first and last message on a filter are read with MSG.GET.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from natsctl.api import endpoints
from natsctl.api.answers import ConsumerInfoAnswer, StreamInfoAnswer
from natsctl.api.consumer import ConsumerInfo
from natsctl.api.errors import ApiResponseError, ErrCode, NotAuthorisedError, UnreachableError
from natsctl.api.requests import StoredMsg
from natsctl.api.stream import ClusterInfo, StreamInfo
from natsctl.api.times import is_zero, parse_time
from natsctl.api.units import format_duration, plural
from natsctl.client.explain.explanation import Cause
from natsctl.client.manager import Manager
from natsctl.client.stream_state import next_message

StreamReport = StreamInfo | StreamInfoAnswer
ConsumerReport = ConsumerInfo | ConsumerInfoAnswer
MAX_FILTERS: Final = 32
"""Most filters of a consumer that are looked up one by one."""
ALL: Final = ">"
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True)
class ConsumerFacts:
    """A consumer, its stream, and the messages that its filters select."""

    stream: StreamReport
    consumer: ConsumerReport
    now_ns: int
    newest: StoredMsg | None = None
    """The last message that it selects; None if there is no such message."""
    waiting_messages: Sequence[StoredMsg] = ()
    """The first messages after its ack floor."""
    unmatched: Sequence[str] = ()
    """Its filters that select no message."""
    subjects: Sequence[str] = ()
    """Subjects of the stream, if there are such filters."""
    mirror_lag: int = 0
    unknown: Sequence[str] = ()
    """What this user may not read."""

    @property
    def is_pull(self) -> bool:
        """Return whether clients ask for its messages."""
        return not self.consumer.config.deliver_subject


@dataclass(frozen=True)
class StreamFacts:
    """A stream and what else decides about its messages."""

    stream: StreamReport
    now_ns: int
    consumers: Sequence[ConsumerInfo] = ()
    subjects: dict[str, int] = field(default_factory=dict)
    """Messages by subject, from one page, for a stream that limits them by subject."""
    overlapping: Sequence[str] = ()
    """Other streams that store some of its subjects."""
    storage: int = 0
    """Bytes that the account uses of the stream's kind of storage."""
    max_storage: int = -1
    missing_origins: Sequence[str] = ()
    """Origins of the same account and domain that do not exist."""
    origin_subjects: dict[str, list[str]] = field(default_factory=dict)
    """Subjects of the origins of the same account, if the stream has no message."""
    unknown: Sequence[str] = ()
    """What this user may not read."""


async def permitted(answer: Awaitable[AnswerT], default: AnswerT, unknown: list[str], what: str) -> AnswerT:
    """Return an answer, or the default with a line in `unknown` if the user may not ask for it."""
    try:
        return await answer
    except NotAuthorisedError as refusal:
        unknown.append(f"{what}: {refusal}")
        return default


def moment(text: str | None) -> int:
    """Return a time in ns since the epoch, 0 for none."""
    return 0 if text is None or is_zero(text) else parse_time(text)


def ago(text: str | None, now_ns: int) -> str:
    """Return how long ago a time was, `never` for none."""
    at_ns = moment(text)
    return f"{span(now_ns - at_ns)} ago" if at_ns else "never"


async def newest_messages(manager: Manager, stream: str, filters: Sequence[str]) -> dict[str, StoredMsg | None]:
    """Return the last message that each filter selects; without a filter, the last one of the stream."""

    async def last(pattern: str) -> StoredMsg | None:
        try:
            return (await manager.message_get(stream, last_by_subj=pattern)).value.message
        except ApiResponseError as failure:
            if failure.err_code != ErrCode.NO_MESSAGE_FOUND:
                raise
            return None

    patterns = list(filters)[:MAX_FILTERS] or [ALL]
    return dict(zip(patterns, await asyncio.gather(*map(last, patterns)), strict=True))


async def messages_from(
    manager: Manager, stream: str, filters: Sequence[str], seq: int, last_seq: int, most: int
) -> list[StoredMsg]:
    """Return at most so many messages that filters select, from a sequence to another."""
    messages: list[StoredMsg] = []
    while len(messages) < most and seq <= last_seq:
        patterns = list(filters)[:MAX_FILTERS] or [ALL]
        nearest = await asyncio.gather(*(next_message(manager, stream, seq, pattern) for pattern in patterns))
        first = min((message for message in nearest if message is not None), key=_sequence, default=None)
        if first is None or first.seq > last_seq:
            break
        messages.append(first)
        seq = first.seq + 1
    return messages


def _sequence(message: StoredMsg) -> int:
    return message.seq


async def subjects_of(manager: Manager, stream: str, pattern: str = ALL) -> dict[str, int]:
    """Return messages by subject: one page of the server's answer."""
    answer = await manager.requests.ask(endpoints.STREAM_INFO, stream, body={"subjects_filter": pattern})
    return dict(answer.value.state.subjects or {})


async def other_stream(manager: Manager, name: str) -> StreamReport | None:
    """Return a stream; None if it does not exist or does not answer."""
    try:
        answer = await manager.find_stream(name)
    except UnreachableError:
        return None
    return answer.value if answer is not None else None


def leaderless(cluster: ClusterInfo | None, noun: str) -> Cause | str | None:
    """Explain a stream or consumer without an elected leader."""
    if cluster is None:
        return None
    if cluster.leader:
        return f"{cluster.leader} leads the {noun}"
    evidence = [f"cluster {cluster.name}", *absent_replicas(cluster)]
    return Cause(f"the {noun} has no leader", evidence, "natsctl server report jetstream")


def lagging(cluster: ClusterInfo | None, noun: str) -> Cause | str | None:
    """Explain replicas that are offline or lag; the stream or consumer works as long as a majority is current."""
    if cluster is None or not cluster.replicas:
        return None
    evidence = absent_replicas(cluster)
    if not evidence:
        return f"all replicas of the {noun} are current"
    text = f"{len(evidence)} of {plural(len(cluster.replicas), 'replica')} of the {noun} offline or not current"
    return Cause(text, evidence, "natsctl server report jetstream")


def absent_replicas(cluster: ClusterInfo) -> list[str]:
    """Return a line for each replica that is offline or not current."""
    return [
        f"replica {peer.name}: "
        + ("offline" if peer.offline else f"lags by {peer.lag:,} operations" if peer.lag else "not current")
        + f", last seen {span(peer.active)} ago"
        for peer in cluster.replicas or ()
        if peer.offline or not peer.current
    ]


def span(ns: int) -> str:
    """Return a duration without digits that nobody reads: whole seconds, or below a second whole milliseconds."""
    unit_ns = 10**9 if ns >= 10**9 else 10**6
    return format_duration(max(0, ns) // unit_ns * unit_ns)
