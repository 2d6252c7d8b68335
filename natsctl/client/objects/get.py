"""An object on its way out of a bucket: chunk by chunk into a file, checked against size and digest at the end."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from natsctl.api.errors import StorageError, UsageError
from natsctl.client.messaging.ordered import OrderedReader
from natsctl.client.objects.bucket import Object, ObjectBucket, digest_bytes
from natsctl.client.whole_file import whole_file

LAGS_S = 5.0
"""How long the next chunk may take: the server of a cluster that reads may be behind the one that took it."""


class ObjectDamagedError(StorageError):
    """What came is not what was put."""


async def get(bucket: ObjectBucket, found: Object, target: IO[bytes], on_progress: Callable[[int], None]) -> None:
    """Write an object's bytes to `target`; tells how many came.

    Raises ObjectDamagedError, with what is wrong with them.
    """
    hashed, size = hashlib.sha256(), 0
    if found.size:
        subject = bucket.chunk_subject(found.nuid)
        async with OrderedReader(bucket.manager, bucket.stream, subject) as reader:
            while size < found.size and (delivered := await reader.next(LAGS_S)) is not None:
                chunk = delivered.message.body
                hashed.update(chunk)
                size += len(chunk)
                target.write(chunk)
                on_progress(size)
    if size != found.size:
        raise ObjectDamagedError(
            f"object {found.name} has {size} bytes in bucket {bucket.name}, but should have {found.size}"
        )
    wanted = digest_bytes(found.digest)
    if wanted and wanted != hashed.digest():
        raise ObjectDamagedError(f"object {found.name} in bucket {bucket.name} does not have the digest {found.digest}")


@contextmanager
def beside(target: Path) -> Iterator[IO[bytes]]:
    """A file to write, which becomes `target` when all goes well; else nothing is left of it.

    Raises UsageError where no file can be, StorageError where it can not be written.
    """
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(whole_file(target, durable=True))
        except OSError as failure:
            raise UsageError(f"cannot write to {target.parent}: {failure.strerror}") from failure
        try:
            yield file
            stack.close()
        except OSError as failure:
            raise StorageError(f"cannot write {target}: {failure.strerror or failure}") from failure
