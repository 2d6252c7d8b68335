"""Why a published message is refused: the checks and their order. Source: jetstream_semantics.md part 1.3.

A check of a feature stands in the feature's module; its place in the order stands here. Checks that guard the stream
against clients are not asked about messages that the server makes itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.api.catalogue import ApiError, error
from natsctl.jetstream.incoming import Check, Incoming
from natsctl.store.filters import Filters

if TYPE_CHECKING:
    from natsctl.jetstream.stream import Stream

MAX_HEADER_BYTES: Final = 65535
"""Longest header block that is stored. Source: reference, error 10097."""

_OF_FEATURES_ABSENT: Final = (
    (headers.INCR, 10168),
    (headers.TTL, 10166),
    (headers.SCHEDULE, 10188),
    (headers.BATCH_ID, 10174),
)
"""Headers that mean nothing here: a message that counts on them is refused, never stored as if they were not there."""


def check_expected_stream(stream: Stream, message: Incoming) -> ApiError | None:
    """Refuse a message for another stream."""
    expected = message.wish.get(headers.EXPECTED_STREAM)
    return error(10060) if expected is not None and expected != stream.name.encode() else None


def check_features(stream: Stream, message: Incoming) -> ApiError | None:
    """Refuse a message that counts on what this stream does not do."""
    return next((error(code) for header, code in _OF_FEATURES_ABSENT if header in message.wish), None)


def check_expected_subject_seq(stream: Stream, message: Incoming) -> ApiError | None:
    """Refuse a message whose subject is not where its publisher believes."""
    expected = message.wish.get(headers.EXPECTED_LAST_SUBJECT_SEQ)
    of = message.wish.get(headers.EXPECTED_LAST_SUBJECT_SEQ_SUBJECT)
    if expected is None:
        return error(10193) if of is not None else None
    store = stream.store
    last = store.last_match(Filters((of,))) if of else store.last_seq_of(message.subject)
    return error(10071, seq=last) if _number(expected) != last else None


def check_expected_seq(stream: Stream, message: Incoming) -> ApiError | None:
    """Refuse a message when the stream is not where its publisher believes."""
    expected = message.wish.get(headers.EXPECTED_LAST_SEQ)
    if expected is not None and _number(expected) != stream.store.last_seq:
        return error(10071, seq=stream.store.last_seq)
    return None


def check_foreign_source(stream: Stream, message: Incoming) -> ApiError | None:
    """Refuse a client's message that claims to come from a source."""
    return error(10227) if headers.STREAM_SOURCE in message.wish else None


def read_message_id(stream: Stream, message: Incoming) -> ApiError | None:
    """Set the id that the duplicate window goes by; refuses nothing."""
    wish = message.wish
    message.msg_id = wish.get(headers.MSG_ID) or wish.get(headers.LEGACY_MSG_ID, b"")
    return None


def check_expected_id(stream: Stream, message: Incoming) -> ApiError | None:
    """Refuse a message when the last one has another id than its publisher believes."""
    expected = message.wish.get(headers.EXPECTED_LAST_MSG_ID)
    if expected is not None and expected != stream.dedupe.last_id:
        return error(10070, id=stream.dedupe.last_id.decode("utf-8", "replace"))
    return None


def check_rollup(stream: Stream, message: Incoming) -> ApiError | None:
    """Refuse a rollup that is not permitted; set which one is asked for."""
    rollup = message.wish.get(headers.ROLLUP)
    if rollup is None:
        return None
    if not stream.config.allow_rollup_hdrs or stream.config.deny_purge:
        return error(10111, err="rollup not permitted")
    message.rollup = rollup.lower()
    if message.rollup not in (b"sub", b"all"):
        return error(10111, err=f'rollup value invalid: "{rollup.decode("utf-8", "replace")}"')
    return None


def check_size(stream: Stream, message: Incoming) -> ApiError | None:
    """Refuse a message that is too large."""
    largest = stream.config.max_msg_size
    if 0 <= largest < len(message.header) + len(message.payload):
        return error(10054)
    return error(10097) if len(message.header) > MAX_HEADER_BYTES else None


def check_resources(stream: Stream, message: Incoming) -> ApiError | None:
    """Refuse a message for which the server has no room."""
    return error(10023) if stream.usage.full else None


BEFORE_DEDUPE: Final[tuple[Check, ...]] = (
    check_expected_stream,
    check_features,
    check_expected_subject_seq,
    check_expected_seq,
    check_foreign_source,
    read_message_id,
)
"""What is looked at before a duplicate is recognised."""

AFTER_DEDUPE: Final[tuple[Check, ...]] = (check_expected_id, check_rollup, check_size, check_resources)
"""What is looked at once it is known that the message is no duplicate."""


def _number(text: bytes) -> int:
    """Return a sequence, -1 (which nothing equals) for anything else."""
    return int(text) if text.isdigit() and len(text) < 21 else -1
