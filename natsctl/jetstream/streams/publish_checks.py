"""The checks of published messages and their order. Source: docs/compatibility.md#publishing.

The check of a feature is in the feature's module; its position in the order is defined here. Checks that guard the
stream against clients do not apply to messages of the server itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from natsctl.api import headers
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import go_quote
from natsctl.api.errors import ErrCode
from natsctl.jetstream.streams import counters
from natsctl.jetstream.streams.message_ttl import check_ttl, read_ttl
from natsctl.jetstream.streams.pending_message import PendingMessage
from natsctl.jetstream.streams.schedule_pattern import check_schedule, check_scheduler
from natsctl.store.filters import Filters
from natsctl.store.message import file_size, memory_size

if TYPE_CHECKING:
    from natsctl.jetstream.streams.stream import Stream
    from natsctl.store.steps import Steps


Check: TypeAlias = "Callable[[Stream, PendingMessage], ApiError | None]"
"""Returns the reason why a message is refused, or None; may rewrite the message."""

MAX_HEADER_BYTES: Final = 65535
"""Longest header block that is stored. Source: nats-server, error 10097."""

MAX_DIGITS: Final = 4000
"""Digits of a number that are read; a longer number never equals the one that it is compared with."""

MAX_RECORD_BYTES: Final = 32 * 1024 * 1024
"""Largest message of a stream on disk, with the overhead of its record. Source: nats-server, filestore.go."""


def check_bounds(stream: Stream, message: PendingMessage) -> ApiError | None:
    """Refuse records that no file can hold, any message of a sealed stream, and too large ones, in this order."""
    size = len(message.header) + len(message.payload)
    if size > MAX_RECORD_BYTES // 2 and (refusal := check_record(stream, message)) is not None:
        return refusal
    config = stream.config
    if config.sealed:
        return error(ErrCode.STREAM_SEALED)
    if 0 <= config.max_msg_size < size:
        return error(ErrCode.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
    return error(ErrCode.STREAM_HEADER_EXCEEDS_MAXIMUM) if len(message.header) > MAX_HEADER_BYTES else None


def check_record(stream: Stream, message: PendingMessage) -> ApiError | None:
    """Refuse a message that no file of a stream can hold."""
    size = file_size(len(message.subject), len(message.header), len(message.payload))
    return (
        error(ErrCode.STREAM_STORE_FAILED, err="message too large")
        if size > MAX_RECORD_BYTES and stream.store.storage == "file"
        else None
    )


def check_sealed(stream: Stream, message: PendingMessage) -> ApiError | None:
    return error(ErrCode.STREAM_SEALED) if stream.config.sealed else None


def check_expected_stream(stream: Stream, message: PendingMessage) -> ApiError | None:
    expected = message.fields.get(headers.EXPECTED_STREAM)
    return error(ErrCode.STREAM_NOT_MATCH) if expected is not None and expected != stream.name.encode() else None


def preparing(stream: Stream, message: PendingMessage) -> Steps[None]:
    """Prepare the check of the last sequence on a pattern: it may match very many subjects."""
    of = message.fields.get(headers.EXPECTED_LAST_SUBJECT_SEQ_SUBJECT)
    if of:
        yield from stream.store.preparing(Filters((of,)))


def check_expected_subject_seq(stream: Stream, message: PendingMessage) -> ApiError | None:
    expected = message.fields.get(headers.EXPECTED_LAST_SUBJECT_SEQ)
    of = message.fields.get(headers.EXPECTED_LAST_SUBJECT_SEQ_SUBJECT)
    if expected is None:
        return error(ErrCode.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID) if of is not None else None
    store = stream.store
    last = store.last_match(Filters((of,))) if of else store.last_seq_of(message.subject)
    return error(ErrCode.STREAM_WRONG_LAST_SEQUENCE, seq=last) if read_seq(expected) != last else None


def check_expected_seq(stream: Stream, message: PendingMessage) -> ApiError | None:
    expected = message.fields.get(headers.EXPECTED_LAST_SEQ)
    if expected is not None and read_seq(expected) != stream.store.last_seq:
        return error(ErrCode.STREAM_WRONG_LAST_SEQUENCE, seq=stream.store.last_seq)
    return None


def check_foreign_source(stream: Stream, message: PendingMessage) -> ApiError | None:
    """Refuse a client's message that claims to come from a source."""
    return (
        error(ErrCode.MESSAGE_SOURCE_HDR_NOT_ALLOWED)
        if headers.STREAM_SOURCE in message.fields and not message.own
        else None
    )


def read_message_id(stream: Stream, message: PendingMessage) -> ApiError | None:
    """Set the id for the duplicate window; refuses nothing."""
    fields = message.fields
    message.msg_id = fields.get(headers.MSG_ID) or fields.get(headers.LEGACY_MSG_ID, b"")
    return None


def check_expected_id(stream: Stream, message: PendingMessage) -> ApiError | None:
    """Refuse a message when the last one has another id than its publisher believes."""
    expected = message.fields.get(headers.EXPECTED_LAST_MSG_ID)
    if expected is not None and expected != stream.dedupe.last_id:
        return error(ErrCode.STREAM_WRONG_LAST_MSG_ID, id=stream.dedupe.last_id.decode("utf-8", "replace"))
    return None


def check_rollup(stream: Stream, message: PendingMessage) -> ApiError | None:
    """Refuse a rollup that is not permitted; set the requested kind."""
    rollup = message.fields.get(headers.ROLLUP)
    if rollup is None:
        return None
    permitted = stream.config.allow_rollup_hdrs and not stream.config.deny_purge
    if not permitted and not message.own:
        return error(ErrCode.STREAM_ROLLUP_FAILED, err="rollup not permitted")
    value = rollup.lower()
    if value not in (b"sub", b"all"):
        return error(
            ErrCode.STREAM_ROLLUP_FAILED, err="rollup value invalid: " + go_quote(value.decode("utf-8", "replace"))
        )
    message.rollup = value if permitted else b""
    return None


def check_size(stream: Stream, message: PendingMessage) -> ApiError | None:
    return check_max_size(stream, message) or check_header(stream, message)


def check_max_size(stream: Stream, message: PendingMessage) -> ApiError | None:
    return (
        error(ErrCode.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
        if 0 <= stream.config.max_msg_size < len(message.header) + len(message.payload)
        else None
    )


def check_header(stream: Stream, message: PendingMessage) -> ApiError | None:
    return error(ErrCode.STREAM_HEADER_EXCEEDS_MAXIMUM) if len(message.header) > MAX_HEADER_BYTES else None


def check_batched(stream: Stream, message: PendingMessage) -> ApiError | None:
    """Check what applies to a message of any batch."""
    return (
        check_sealed(stream, message)
        or check_resources(stream, message)
        or check_account(stream, message)
        or check_max_size(stream, message)
    )


def check_resources(stream: Stream, message: PendingMessage) -> ApiError | None:
    return error(ErrCode.INSUFFICIENT_RESOURCES) if stream.usage.full else None


def check_account(stream: Stream, message: PendingMessage) -> ApiError | None:
    if not stream.usage.limited:
        return None
    stream.count_bytes()
    measure = file_size if stream.store.storage == "file" else memory_size
    size = measure(len(message.subject), len(message.header), len(message.payload))
    return error(ErrCode.ACCOUNT_RESOURCES_EXCEEDED) if stream.usage.refuses(size) else None


BEFORE_DEDUPE: Final[tuple[Check, ...]] = (
    check_bounds,
    counters.check_increment,
    check_expected_stream,
    check_ttl,
    check_expected_subject_seq,
    check_expected_seq,
    check_schedule,
    check_scheduler,
    check_foreign_source,
    read_message_id,
)

AFTER_DEDUPE: Final[tuple[Check, ...]] = (
    check_expected_id,
    check_rollup,
    counters.count,
    check_size,
    check_resources,
    read_ttl,
)
"""The checks of a message that is no duplicate; the size once more, as it may have grown."""

COMMON: Final = frozenset(
    {
        headers.MSG_ID,
        headers.LEGACY_MSG_ID,
        headers.EXPECTED_LAST_SEQ,
        headers.EXPECTED_LAST_SUBJECT_SEQ,
        headers.EXPECTED_LAST_SUBJECT_SEQ_SUBJECT,
    }
)
"""Headers of messages that need a few of the checks only, because the others have nothing to check."""

_BEFORE_OF_COMMON: Final[tuple[Check, ...]] = (
    check_bounds,
    check_expected_subject_seq,
    check_expected_seq,
    read_message_id,
)
_BEFORE_OF_PLAIN: Final[tuple[Check, ...]] = (check_bounds,)
_AFTER_OF_COMMON: Final[tuple[Check, ...]] = (counters.count, check_resources)


def check_message(stream: Stream, message: PendingMessage) -> ApiError | int:
    """Return the error of a message, the sequence that it is a duplicate of, or 0: it may be stored."""
    before, after, fields = _BEFORE_OF_PLAIN, _AFTER_OF_COMMON, message.fields
    if fields:
        before = _BEFORE_OF_COMMON
        if not fields.keys() <= COMMON:
            before, after = BEFORE_DEDUPE, AFTER_DEDUPE
    for check in before:
        refusal = check(stream, message)
        if refusal is not None:
            return refusal
    if message.msg_id:
        known = stream.dedupe.find(message.msg_id)
        if known:
            return known
    for check in after:
        refusal = check(stream, message)
        if refusal is not None:
            return refusal
    return 0


def read_seq(text: bytes) -> int:
    """Return a sequence as nats-server reads it, -1 (which nothing equals) for anything but digits."""
    return int(text[-MAX_DIGITS:]) % 2**64 if text.isdigit() else -1
