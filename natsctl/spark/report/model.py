"""The document of a deep report on a stream."""

from __future__ import annotations

from natsctl.api.model import Model


class SubjectUse(Model, kw_only=True):
    """The messages of a subject; `bytes` are those of payloads, times are RFC 3339."""

    subject: str
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    first: str
    last: str


class Sizes(Model, kw_only=True):
    """Sizes of payloads in bytes: `p90` is not exceeded by 90 of 100 messages; right to one in a thousand."""

    min: int
    mean: float
    p50: int
    p90: int
    p99: int
    max: int


class SizeClass(Model, kw_only=True):
    """The messages whose payload has `from_bytes` to `to_bytes`, both included."""

    from_bytes: int
    to_bytes: int
    messages: int


class Slot(Model, kw_only=True):
    """The messages stored in a stretch of time that begins at `start`, RFC 3339."""

    start: str
    messages: int
    bytes: int


class Repeated(Model, kw_only=True):
    """A message id, or the SHA-256 of a payload, that several messages have."""

    key: str
    messages: int
    first_seq: int
    last_seq: int


class Repeats(Model, kw_only=True):
    """Keys that several messages have: their number, the messages beyond one for each, and the most frequent."""

    keys: int
    extra_messages: int
    most: list[Repeated]


class HeaderUse(Model, kw_only=True):
    """The number of messages that have a header, once or more often."""

    key: str
    messages: int


class Gap(Model, kw_only=True):
    """Sequences without a message, both ends included."""

    first: int
    last: int
    missing: int


class Gaps(Model, kw_only=True):
    """Gaps between the first and the last message: their number, the sequences missing in all, and the longest."""

    gaps: int
    missing: int
    longest: list[Gap]


class DeepReport(Model, kw_only=True):
    """`stream report --deep`: facts that need every message of a stream to be read.

    `bytes` are those of payloads, `header_bytes` those of headers. `slot_s` is the length of a slot. Lists of subjects,
    headers, ids and gaps have the most frequent or longest; `number_of_subjects` counts all. `payloads` is null where
    payloads were not compared.
    """

    stream: str
    messages: int
    bytes: int
    header_bytes: int
    first_seq: int
    last_seq: int
    first: str
    last: str
    number_of_subjects: int
    subjects: list[SubjectUse]
    sizes: Sizes | None
    size_classes: list[SizeClass]
    slot_s: float
    slots: list[Slot]
    headers: list[HeaderUse]
    with_id: int
    ids: Repeats
    payloads: Repeats | None
    gaps: Gaps
