"""Common parts of key-value buckets and object stores: names, lists, and their streams.

Entries of key-value buckets: key, operation, time to live. Source: ADR-8, ADR-48.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from natsctl.api.errors import ApiResponseError, ErrCode, NatsctlError, NothingReceivedError, UsageError
from natsctl.api.units import SECOND, format_duration, parse_duration
from natsctl.hints import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from natsctl.api.answers import StreamInfoAnswer
    from natsctl.api.catalogue import ApiError
    from natsctl.api.stream import StreamInfo
    from natsctl.client.manager import Manager
    from natsctl.client.message import Headers
    from natsctl.client.messaging.consumers import DeliveredMessage, OrderedReader
    from natsctl.client.requests import Answer, ListedFields, Listing


WRONG_LAST_SEQUENCE = frozenset((ErrCode.STREAM_WRONG_LAST_SEQUENCE, ErrCode.STREAM_WRONG_LAST_SEQUENCE_CONSTANT))
"""Errors of a publish with another expected last sequence of its subject; replicated streams answer the second."""
_BUCKET = r"[A-Za-z0-9_-]+"


class BucketKind(NamedTuple):
    """A kind of bucket: `word` names its commands, `prefix` begins its streams, `subject` matches their messages."""

    word: str
    noun: str
    prefix: str
    subject: str

    @property
    def root(self) -> str:
        """The first token of its subjects."""
        return self.subject.partition(".")[0]

    def stream_of(self, bucket: str) -> str:
        """Return the stream of a bucket. Raises UsageError for an invalid name."""
        if not re.fullmatch(_BUCKET, bucket):
            raise UsageError(
                f"{bucket!r} is not a valid bucket name",
                hint="the name of a bucket consists of letters, digits, - and _",
            )
        return self.prefix + bucket

    def bucket_of(self, stream: str) -> str:
        return stream.removeprefix(self.prefix)

    def is_mine(self, stream: str) -> bool:
        return stream.startswith(self.prefix) and re.fullmatch(_BUCKET, stream.removeprefix(self.prefix)) is not None


KV = BucketKind("kv", "Key-Value bucket", "KV_", "$KV.*.>")
OBJECTS = BucketKind("object", "Object bucket", "OBJ_", "$O.*.>")


def kind_of(stream: str) -> BucketKind | None:
    """Return the kind of bucket that a stream is by its name, None for another stream."""
    return next((kind for kind in (KV, OBJECTS) if kind.is_mine(stream)), None)


class BucketNotFoundError(ApiResponseError):
    def __init__(self, kind: BucketKind, bucket: str, error: ApiError, subject: str) -> None:
        super().__init__(error, subject)
        self.args = (f"{kind.noun} {bucket} does not exist",)
        self.kind = kind
        self.bucket = bucket


async def bucket_info(manager: Manager, kind: BucketKind, bucket: str) -> Answer[StreamInfoAnswer]:
    """Return the stream of a bucket. Raises BucketNotFoundError, UsageError for a bad name."""
    stream = kind.stream_of(bucket)
    with naming_bucket(kind, bucket):
        return await manager.stream_info(stream)


@contextmanager
def naming_bucket(kind: BucketKind, bucket: str) -> Iterator[None]:
    """Raise BucketNotFoundError if the stream of the bucket is reported as missing."""
    try:
        yield
    except ApiResponseError as failure:
        if failure.err_code == ErrCode.STREAM_NOT_FOUND:
            raise BucketNotFoundError(kind, bucket, failure.error, failure.subject) from failure
        raise


class WatchOptions(NamedTuple):
    """Options of a watch: keys, start, and end (`limit` entries, or `wait_s` without one)."""

    pattern: str = ">"
    history: bool = False
    updates: bool = False
    revision: int = 0
    deletes: bool = True
    limit: int = 0
    wait_s: float | None = None

    @property
    def deliver(self) -> str:
        if self.revision:
            return "by_start_sequence"
        return "new" if self.updates else "all" if self.history else "last_per_subject"


ChangeT = TypeVar("ChangeT", bound=Any)
"""An entry or an object, with `deleted`."""


async def watch_bucket(
    kind: BucketKind,
    bucket: str,
    reading: OrderedReader,
    changes_in: Callable[[DeliveredMessage], list[ChangeT]],
    options: WatchOptions,
    *,
    nothing: str,
) -> AsyncIterator[ChangeT]:
    """Yield the changes that `reading` receives; raises NothingReceivedError if the wait ended without any."""
    number = 0
    with naming_bucket(kind, bucket):
        async with reading as reader:
            while not options.limit or number < options.limit:
                delivered = await reader.next(options.wait_s)
                if delivered is None:
                    break
                for change in changes_in(delivered):
                    if options.deletes or not change.deleted:
                        number += 1
                        yield change
    if not number:
        raise NothingReceivedError(nothing)


async def bucket_names(manager: Manager, kind: BucketKind) -> list[str]:
    """Return the names of all buckets of a kind, by STREAM.NAMES only.

    Not by subject: a mirror stores no subjects of its own, and would be missing.
    """
    return [kind.bucket_of(name) for name in await manager.stream_names() if kind.is_mine(name)]


async def bucket_name_pages(manager: Manager, kind: BucketKind) -> AsyncIterator[list[str]]:
    """Yield the same names, each page as it comes."""
    async for page in manager.stream_name_pages():
        yield [kind.bucket_of(name) for name in page if kind.is_mine(name)]


async def bucket_infos(
    manager: Manager, kind: BucketKind, fields: ListedFields | None = None
) -> tuple[list[Answer[StreamInfo]], list[str]]:
    """Return the streams of all buckets of a kind, and the names of those that the server could not show.

    Names are cheap and complete, the list by subject leaves out mirrors: those are asked for one by one. `fields` as in
    `Manager.stream_list`.
    """
    from natsctl.client.manager import STREAM
    from natsctl.client.requests import Answer, together

    asked: list[Any] = [bucket_names(manager, kind), manager.stream_list(subject=kind.subject, fields=fields)]
    names, listed = await together(manager.connection, *asked)
    found = {one.raw["config"]["name"]: one for one in listed if kind.is_mine(one.raw["config"]["name"])}
    absent = _unreachable(listed, kind)
    left = [name for name in names if kind.prefix + name not in found and name not in absent]

    async def one(bucket: str) -> Answer[StreamInfo] | None:
        try:
            answer = await manager.stream_info(kind.prefix + bucket)
        except NatsctlError:
            return None
        return Answer(STREAM, answer.subject, raw=answer.raw)

    more = dict(zip(left, await together(manager.connection, *(one(name) for name in left)), strict=True))
    absent += [name for name, answer in more.items() if answer is None]
    found |= {kind.prefix + name: answer for name, answer in more.items() if answer is not None}
    return [found[name] for name in sorted(found)], absent


def _unreachable(listed: Listing[Answer[StreamInfo]], kind: BucketKind) -> list[str]:
    said = [*(listed.raw.get("missing") or ()), *(listed.raw.get("offline") or ())]
    return [kind.bucket_of(name) for name in said if kind.is_mine(name)]


PUT, DEL, PURGE = "PUT", "DEL", "PURGE"
OPERATION = "KV-Operation"
REASON = "Nats-Marker-Reason"
TTL = "Nats-TTL"
FOREVER = "never"
SIZE = "Nats-Msg-Size"
"""Length of a value, for a message read without its body."""
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
ROLLUP = "Nats-Rollup"
ALL_KEYS = ">"
SHORTEST_TTL_NS = SECOND

_BY_REASON = {"MaxAge": PURGE, "Purge": PURGE, "Remove": DEL}
_KEY = r"[-/_=.a-zA-Z0-9]+"
_PATTERN = r"[-/_=.a-zA-Z0-9*]*>?"


class Entry(NamedTuple):
    """One revision of a key; `created` is RFC 3339, `delta` the number of entries that are still to be read.

    `value` is None if only headers were read; `length` is known then too. `ttl_ns` is its time to live, 0 for the TTL
    of the bucket, -1 forever.
    """

    bucket: str
    key: str
    revision: int
    operation: str
    created: str
    length: int
    value: bytes | None
    delta: int = 0
    ttl_ns: int = 0

    @property
    def deleted(self) -> bool:
        """Return whether the key has no value since then."""
        return self.operation != PUT


def check_key(key: str) -> None:
    if not re.fullmatch(_KEY, key) or not all(key.split(".")):
        raise UsageError(
            f"{key!r} is not a valid key",
            hint="a key consists of letters, digits and any of - / _ = . with no dot at an end or next to another",
        )


def check_pattern(pattern: str) -> None:
    """Raise UsageError for an invalid pattern: `*` represents one whole token, `>` for all that follow."""
    tokens = pattern.split(".")
    whole = all(token and (token in ("*", ">") or {"*", ">"}.isdisjoint(token)) for token in tokens)
    if not re.fullmatch(_PATTERN, pattern) or not whole:
        raise UsageError(
            f"{pattern!r} matches no key", hint="a filter is a key in which * may replace a token and > the rest"
        )


def is_pattern(key: str) -> bool:
    return "*" in key or ">" in key


def operation_of(headers: Headers) -> str:
    """Return the operation of a stored message on its key."""
    said = dict(headers.pairs)
    operation = said.get(OPERATION) or _BY_REASON.get(said.get(REASON, ""), "")
    return operation if operation in (DEL, PURGE) else PUT


def ttl_of(headers: Headers) -> int:
    """Return how long a stored message lives, as `Entry.ttl_ns`; servers write seconds, clients any duration."""
    said = headers.get(TTL, "")
    if said.isdigit():
        return int(said) * SECOND
    try:
        return -1 if said == FOREVER else parse_duration(said) if said else 0
    except ValueError:
        return 0


def write_headers(operation: str = PUT, *, expected: int | None = None, ttl_ns: int = 0) -> dict[str, str]:
    """Return the headers of a message that puts, deletes or purges a key."""
    headers = {} if operation == PUT else {OPERATION: operation}
    if operation == PURGE:
        headers[ROLLUP] = "sub"
    if expected is not None:
        headers[EXPECTED] = str(expected)
    if ttl_ns:
        if ttl_ns < SHORTEST_TTL_NS:
            raise UsageError(f"--ttl: a key lives {format_duration(SHORTEST_TTL_NS)} at least")
        headers[TTL] = format_duration(ttl_ns)
    return headers
