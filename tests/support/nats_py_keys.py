"""Keys and histories that nats-py reads, asked again if it ends before the first.

nats-py (2.15) takes a bucket for empty if every message came before its CONSUMER.INFO was answered, and none has been
handled yet: at a load of 7 one read in some thousands.
"""

from __future__ import annotations

from typing import Any, Final

from nats.js.errors import NoKeysError

ATTEMPTS: Final = 20


async def keys_of(bucket: Any) -> list[str]:
    return [str(key) for key in await _read(bucket.keys)]


async def history_of(bucket: Any, key: str) -> list[Any]:
    return list(await _read(bucket.history, key))


async def _read(read: Any, *arguments: str) -> Any:
    for _ in range(ATTEMPTS):
        try:
            return await read(*arguments)
        except NoKeysError:
            continue
    return await read(*arguments)
