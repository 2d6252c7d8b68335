"""Which stored message a get asks for. MSG.GET and DIRECT.GET share the selectors. Only durable messages are found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsctl.api.requests import StreamMsgGetRequest
from natsctl.api.times import is_zero, parse_time
from natsctl.store.filters import ALL, Filters

if TYPE_CHECKING:
    from natsctl.store.message import StoredMessage
    from natsctl.store.stream import StreamStore


class BadRequest(Exception):
    """Selectors that contradict each other."""


class EmptyRequest(BadRequest):
    """No selector at all."""


def find(store: StreamStore, request: StreamMsgGetRequest) -> StoredMessage | None:
    """Return the message that a single get asks for. Raises BadRequest and StoreError."""
    if request.last_by_subj:
        if request.seq or request.next_by_subj or not is_zero(request.start_time):
            raise BadRequest
        return last(store, _filters(request.last_by_subj))
    if not request.next_by_subj and is_zero(request.start_time):
        if not request.seq:
            raise EmptyRequest
        return store.get(request.seq)
    return store.next_match(_wanted(request), _start(store, request))


def last(store: StreamStore, filters: Filters) -> StoredMessage | None:
    """Return the newest durable match."""
    seq = store.last_match(filters)
    if seq > store.durable_seq:
        seq = max(store.last_per_subject(filters), default=0)
    return store.get(seq) if seq else None


def batch(store: StreamStore, request: StreamMsgGetRequest) -> tuple[list[StoredMessage], int]:
    """Return the messages of a batch get, and how many matches follow them. Raises BadRequest and StoreError."""
    if request.last_by_subj or request.batch < 0:
        raise BadRequest
    if not request.next_by_subj and is_zero(request.start_time) and not request.seq:
        raise EmptyRequest
    filters = _wanted(request)
    messages = store.read_from(_start(store, request), filters, request.batch or 1)
    messages = _cut(messages, request.max_bytes)
    left = store.count(filters, messages[-1].seq + 1, store.durable_seq) if messages else 0
    return messages, left


def multi_last(store: StreamStore, request: StreamMsgGetRequest, most: int) -> tuple[list[int] | None, int]:
    """Return the newest sequence of each matching subject (None: more than `most`) and up to where was looked."""
    if request.last_by_subj or request.next_by_subj or not is_zero(request.start_time):
        raise BadRequest
    if request.up_to_seq and not is_zero(request.up_to_time):
        raise BadRequest
    up_to = store.durable_seq
    if request.up_to_seq:
        up_to = min(up_to, request.up_to_seq)
    elif not is_zero(request.up_to_time):
        up_to = min(up_to, store.first_seq_at(_time(request.up_to_time)) - 1)
    seqs = store.last_per_subject(_filters(*request.multi_last), up_to) if up_to else []
    seqs = [seq for seq in seqs if seq >= request.seq]
    return (None if len(seqs) > most else seqs), up_to


def read(store: StreamStore, seqs: list[int], request: StreamMsgGetRequest) -> list[StoredMessage]:
    """Return the messages `seqs`, as many as the request's batch and max_bytes allow."""
    wanted = seqs[: request.batch] if request.batch > 0 else seqs
    found = (store.get(seq) for seq in wanted)
    return _cut([message for message in found if message is not None], request.max_bytes)


def _cut(messages: list[StoredMessage], max_bytes: int) -> list[StoredMessage]:
    """Return the first messages that fit into `max_bytes` (0: any), at least one."""
    if max_bytes <= 0:
        return messages
    size = 0
    for index, message in enumerate(messages):
        size += len(message.subject) + len(message.header) + len(message.payload)
        if size > max_bytes and index:
            return messages[:index]
    return messages


def _wanted(request: StreamMsgGetRequest) -> Filters:
    return _filters(request.next_by_subj) if request.next_by_subj else ALL


def _start(store: StreamStore, request: StreamMsgGetRequest) -> int:
    """Return where a search forward begins."""
    if is_zero(request.start_time):
        return max(request.seq, 1)
    if request.seq:
        raise BadRequest
    return store.first_seq_at(_time(request.start_time))


def _time(text: str | None) -> int:
    try:
        return parse_time(text or "")
    except ValueError as fault:
        raise BadRequest from fault


def _filters(*subjects: str) -> Filters:
    return Filters([subject.encode() for subject in subjects])
