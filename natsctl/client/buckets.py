"""What key-value buckets and object stores share: their names, which there are, and the streams they live in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from natsctl.api.err_codes import ErrCode
from natsctl.api.errors import ApiResponseError, NatsctlError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from natsctl.api.answers import StreamInfoAnswer
    from natsctl.api.catalogue import ApiError
    from natsctl.api.stream import StreamInfo
    from natsctl.client.answer import Answer, Listing
    from natsctl.client.manager import Manager

WRONG_LAST_SEQUENCE = frozenset((ErrCode.STREAM_WRONG_LAST_SEQUENCE, ErrCode.STREAM_WRONG_LAST_SEQUENCE_CONSTANT))
"""What a publish gets that expected another last sequence of its subject; replicated streams answer the second."""
_BUCKET = re.compile(r"[A-Za-z0-9_-]+")


class Kind(NamedTuple):
    """A kind of bucket: `word` names its commands, `prefix` begins its streams, `subject` matches what they store."""

    word: str
    noun: str
    prefix: str
    subject: str

    def stream_of(self, bucket: str) -> str:
        """The stream of a bucket. Raises UsageError for what can name none."""
        if not _BUCKET.fullmatch(bucket):
            raise UsageError(
                f"{bucket!r} is not a valid bucket name",
                hint="the name of a bucket consists of letters, digits, - and _",
            )
        return self.prefix + bucket

    def bucket_of(self, stream: str) -> str:
        """The bucket of a stream that `is_mine`."""
        return stream.removeprefix(self.prefix)

    def is_mine(self, stream: str) -> bool:
        """Whether a stream is a bucket of this kind."""
        return stream.startswith(self.prefix) and _BUCKET.fullmatch(stream.removeprefix(self.prefix)) is not None


KV = Kind("kv", "Key-Value bucket", "KV_", "$KV.*.>")
OBJECTS = Kind("object", "Object bucket", "OBJ_", "$O.*.>")


class BucketNotFoundError(ApiResponseError):
    """There is no bucket of that name."""

    def __init__(self, kind: Kind, bucket: str, error: ApiError, subject: str) -> None:
        super().__init__(error, subject)
        self.args = (f"{kind.noun} {bucket} does not exist",)
        self.kind = kind
        self.bucket = bucket


async def bucket_info(manager: Manager, kind: Kind, bucket: str) -> Answer[StreamInfoAnswer]:
    """The stream of a bucket. Raises BucketNotFoundError, UsageError for a bad name."""
    stream = kind.stream_of(bucket)
    try:
        return await manager.stream_info(stream)
    except ApiResponseError as failure:
        if failure.err_code == ErrCode.STREAM_NOT_FOUND:
            raise BucketNotFoundError(kind, bucket, failure.error, failure.subject) from failure
        raise


async def bucket_names(manager: Manager, kind: Kind) -> list[str]:
    """The names of all buckets of a kind, by STREAM.NAMES alone.

    Not by subject: a mirror stores no subjects of its own, and would be missing.
    """
    return [kind.bucket_of(name) for name in await manager.stream_names() if kind.is_mine(name)]


async def bucket_name_pages(manager: Manager, kind: Kind) -> AsyncIterator[list[str]]:
    """The same names, each page as it comes."""
    async for page in manager.stream_name_pages():
        yield [kind.bucket_of(name) for name in page if kind.is_mine(name)]


async def bucket_infos(manager: Manager, kind: Kind) -> tuple[list[Answer[StreamInfo]], list[str]]:
    """The streams of all buckets of a kind, and the names of those that the server could not show.

    Names are cheap and complete, the list by subject leaves out mirrors: those are asked for one by one.
    """
    import asyncio

    from natsctl.client.answer import Answer

    names, listed = await asyncio.gather(bucket_names(manager, kind), manager.stream_list(subject=kind.subject))
    found = {one.raw["config"]["name"]: one for one in listed if kind.is_mine(one.raw["config"]["name"])}
    absent = _unreachable(listed, kind)
    left = [name for name in names if kind.prefix + name not in found and name not in absent]

    async def one(bucket: str) -> Answer[StreamInfo] | None:
        from natsctl.api.stream import StreamInfo

        try:
            answer = await manager.stream_info(kind.prefix + bucket)
        except NatsctlError:
            return None
        return Answer(StreamInfo, answer.subject, raw=answer.raw)

    more = dict(zip(left, await asyncio.gather(*(one(name) for name in left)), strict=True))
    absent += [name for name, answer in more.items() if answer is None]
    found |= {kind.prefix + name: answer for name, answer in more.items() if answer is not None}
    return [found[name] for name in sorted(found)], absent


def _unreachable(listed: Listing[Answer[StreamInfo]], kind: Kind) -> list[str]:
    said = [*(listed.raw.get("missing") or ()), *(listed.raw.get("offline") or ())]
    return [kind.bucket_of(name) for name in said if kind.is_mine(name)]
