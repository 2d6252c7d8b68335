"""What the headers of a published message ask for, and why that is refused. Source: jetstream_semantics.md part 1.2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.api.catalogue import ApiError, error
from natsctl.api.headers import ROLLUP
from natsctl.store.filters import Filters

if TYPE_CHECKING:
    from natsctl.jetstream.stream import Stream

Wish = dict[bytes, bytes]

_OF_FEATURES_ABSENT: Final = (
    (headers.INCR, 10168),
    (headers.TTL, 10166),
    (headers.SCHEDULE, 10188),
    (headers.BATCH_ID, 10174),
)
"""Headers that mean nothing here: a message that counts on them is refused, never stored as if they were not there."""


def read_headers(block: bytes) -> Wish:
    """Return the headers of a block that a stream looks at, first value each; one without a value counts as absent."""
    if b"\r\nNats-" not in block and b"\r\nMsg-Id:" not in block:
        return {}
    wish: Wish = {}
    for line in block.split(b"\r\n"):
        if line.startswith((b"Nats-", b"Msg-Id:")):
            key, _, value = line.partition(b":")
            if value := value.strip():
                wish.setdefault(key, value)
    return wish


def message_id(wish: Wish) -> bytes:
    """Return the id that the duplicate window goes by, empty when there is none."""
    return wish.get(headers.MSG_ID) or wish.get(headers.LEGACY_MSG_ID, b"")


def expectations(stream: Stream, wish: Wish, subject: bytes) -> ApiError | None:
    """Return what is refused before a duplicate is looked for."""
    expected = wish.get(headers.EXPECTED_STREAM)
    if expected is not None and expected != stream.name.encode():
        return error(10060)
    for header, code in _OF_FEATURES_ABSENT:
        if header in wish:
            return error(code)
    refusal = _expected_subject_seq(stream, wish, subject)
    if refusal is not None:
        return refusal
    expected = wish.get(headers.EXPECTED_LAST_SEQ)
    if expected is not None and _number(expected) != stream.store.last_seq:
        return error(10071, seq=stream.store.last_seq)
    return error(10227) if headers.STREAM_SOURCE in wish else None


def _expected_subject_seq(stream: Stream, wish: Wish, subject: bytes) -> ApiError | None:
    expected = wish.get(headers.EXPECTED_LAST_SUBJECT_SEQ)
    of = wish.get(headers.EXPECTED_LAST_SUBJECT_SEQ_SUBJECT)
    if expected is None:
        return error(10193) if of is not None else None
    store = stream.store
    last = store.last_match(Filters((of,))) if of else store.last_seq_of(subject)
    return error(10071, seq=last) if _number(expected) != last else None


def after_dedupe(stream: Stream, wish: Wish) -> ApiError | None:
    """Return what is refused once it is known that the message is no duplicate."""
    if not wish:
        return None
    expected = wish.get(headers.EXPECTED_LAST_MSG_ID)
    if expected is not None and expected != stream.dedupe.last_id:
        return error(10070, id=stream.dedupe.last_id.decode("utf-8", "replace"))
    rollup = wish.get(ROLLUP)
    if rollup is None:
        return None
    if not stream.config.allow_rollup_hdrs or stream.config.deny_purge:
        return error(10111, err="rollup not permitted")
    if rollup.lower() not in (b"sub", b"all"):
        return error(10111, err=f'rollup value invalid: "{rollup.decode("utf-8", "replace")}"')
    return None


def _number(text: bytes) -> int:
    """Return a sequence, -1 (which nothing equals) for anything else."""
    return int(text) if text.isdigit() and len(text) < 21 else -1


__all__ = ["ROLLUP", "Wish", "after_dedupe", "expectations", "message_id", "read_headers"]
