"""The selection of stored messages by MSG.GET and DIRECT.GET. Only durable messages are found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import asdict, fields

from natsctl.api.model import INT64_MAX, UINT64_MAX
from natsctl.api.requests import DirectGetRequest, StreamMsgGetRequest
from natsctl.api.subjects import is_literal
from natsctl.api.times import parse_time
from natsctl.store.filters import ALL, Filters
from natsctl.store.steps import Steps

if TYPE_CHECKING:
    from natsctl.store.message import StoredMessage
    from natsctl.store.stream import StreamStore


_decoder: Final = msgspec.json.Decoder(
    msgspec.defstruct("NullableDirectGet", [(each.name, each.type | None, None) for each in fields(DirectGetRequest)])
    | None
)
"""It skips what no field takes, however much that is."""


def read_request(body: bytes) -> DirectGetRequest | None:
    """Return the decoded direct get, unknown keys ignored and null as absent; None if it is invalid."""
    try:
        value = _decoder.decode(body)
        if value is None:
            return DirectGetRequest()
        request = DirectGetRequest(**{key: item for key, item in asdict(value).items() if item is not None})
        for time in (request.start_time, request.up_to_time):
            if time is not None:
                parse_time(time)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return None
    numbers_fit = all(0 <= seq <= UINT64_MAX for seq in (request.seq, request.up_to_seq))
    return request if numbers_fit and max(abs(request.batch), abs(request.max_bytes)) <= INT64_MAX else None


# Checks


def selects_nothing(request: StreamMsgGetRequest) -> bool:
    selectors = (request.seq, request.last_by_subj, request.next_by_subj, request.multi_last)
    return not any(selectors) and request.start_time is None


def contradicts(request: StreamMsgGetRequest) -> bool:
    timed = request.start_time is not None
    if request.last_by_subj:
        return bool(request.seq or timed or request.next_by_subj)
    return bool(request.seq and timed)


def contradicts_in_batch(request: DirectGetRequest) -> bool:
    """Return whether a selector of batches excludes another one."""
    if request.last_by_subj and (request.batch > 0 or request.multi_last):
        return True
    if request.next_by_subj and request.multi_last:
        return True
    return bool(request.up_to_seq) and request.up_to_time is not None


def has_selectors(request: DirectGetRequest) -> bool:
    """Return whether a request has fields that select messages; requests with a subject must not have any."""
    return request != DirectGetRequest(no_hdr=request.no_hdr, max_bytes=request.max_bytes)


# Finding


def find(store: StreamStore, request: StreamMsgGetRequest, newest_seq: int) -> StoredMessage | None:
    """Return the message that a single get asks for. Raises StoreError.

    `newest_seq` is the answer of `newest` when the request arrived.
    """
    seq = start_of(store, request)
    if request.next_by_subj:
        return store.next_match(filters_of(request), seq)
    if seq:
        return store.get(seq)
    return _last(store, request, newest_seq)


def newest(store: StreamStore, request: StreamMsgGetRequest) -> int:
    """Return the newest sequence, durable or not, on the subjects that `last_by_subj` matches ("": all)."""
    key = request.last_by_subj.encode("utf-8", "surrogateescape")
    if key and is_literal(key):
        return store.last_seq_of(key)
    return store.last_match(Filters((key,)) if key else ALL)


def _last(store: StreamStore, request: StreamMsgGetRequest, newest_seq: int) -> StoredMessage | None:
    """Return the newest durable message that `newest` finds.

    On a subject that is written all the time, a limit may already have removed that message for one that is not
    durable yet; then the newest one at the arrival of the request is read anyway.
    """
    seq = newest(store, request)
    if seq <= store.durable_seq:
        return store.get(seq) if seq else None
    key = request.last_by_subj.encode("utf-8", "surrogateescape")
    seq = max(store.last_per_subject(Filters((key,)) if key else ALL), default=0)
    if not seq < newest_seq <= store.durable_seq:
        return store.get(seq) if seq else None
    return next((message for message in store.remnants(newest_seq) if message.seq == newest_seq), None)


def patterns_of(request: StreamMsgGetRequest) -> Filters | None:
    """Return the wildcard filter of a get, so that the store can prepare; None for a literal subject."""
    key = (request.next_by_subj or request.last_by_subj).encode("utf-8", "surrogateescape")
    return Filters((key,)) if key and not is_literal(key) else None


def filters_of(request: StreamMsgGetRequest) -> Filters:
    return patterns(request.next_by_subj) if request.next_by_subj else ALL


def start_of(store: StreamStore, request: StreamMsgGetRequest) -> int:
    """Return the first sequence of a forward search, 0 if the request names none."""
    return request.seq if request.start_time is None else store.first_seq_at(parse_time(request.start_time))


def last_searched(store: StreamStore, request: DirectGetRequest) -> int:
    """Return the last sequence that a `multi_last` search includes, 0 if no message is old enough."""
    if request.up_to_time is None:
        return request.up_to_seq or store.durable_seq
    seq = store.first_seq_at(parse_time(request.up_to_time))
    return 0 if seq <= store.first_seq else min(seq - 1, store.durable_seq)


def finding_last_of_subjects(store: StreamStore, filters: Filters, up_to: int, most: int) -> Steps[list[int] | None]:
    """Return the newest sequence at or below `up_to` of each subject that the filters match; None: more than `most`.

    Nothing may change between the steps. With `up_to` above the last sequence nothing is found in a stream on disk, and
    everything in one in memory, as in nats-server.
    """
    if not up_to or (up_to > store.last_seq and store.storage == "file"):
        return []
    return (yield from store.finding_few_last(filters, up_to, most))


def patterns(subject: str) -> Filters:
    return Filters((subject.encode("utf-8", "surrogateescape"),))
