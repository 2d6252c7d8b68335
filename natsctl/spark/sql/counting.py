"""Asks a server for what a query counts, in a request or a few."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from natsctl.client.assets.purging import next_message
from natsctl.spark.sql.catalogue import Catalogue
from natsctl.spark.sql.counted import Facts
from natsctl.spark.sql.counted_reader import counted

if TYPE_CHECKING:
    from natsctl.api.stream import StreamState
    from natsctl.client.manager import Manager
    from natsctl.spark.sql.counted import CountedQuery

ALL = ">"


def counted_query(query: str, catalogue: Catalogue) -> tuple[CountedQuery, str] | None:
    """What a query asks that needs no message, and of which stream; None for one that Spark must answer."""
    found = counted(query)
    table = catalogue.find(found.table) if found is not None else None
    return (found, table.stream) if found is not None and table is not None and table.kind == "stream" else None


async def facts_for(manager: Manager, stream: str, query: CountedQuery) -> Facts:
    """What the server knows of the stream now, as far as the query needs it."""
    if query.only is not None:
        pages = await asyncio.gather(*(subject_counts(manager, stream, subject) for subject in query.only))
        found = {subject: number for page in pages for subject, number in page.items()}
        return Facts(sum(found.values()), subjects=found)
    answer = await manager.stream_info(stream, subjects_filter=ALL if query.needs_subjects else "")
    subjects: Mapping[str, int] = (answer.raw.get("state") or {}).get("subjects") or {}
    state = answer.value.state
    first, last = await _ends(manager, stream, state) if query.needs_ends else (None, None)
    return Facts(state.messages, first, last, subjects)


async def subject_counts(manager: Manager, stream: str, pattern: str = ALL) -> dict[str, int]:
    """How many messages each subject has."""
    answer = await manager.stream_info(stream, subjects_filter=pattern)
    return dict((answer.raw.get("state") or {}).get("subjects") or {})


async def _ends(manager: Manager, stream: str, state: StreamState) -> tuple[int | None, int | None]:
    """The sequences of the first and the last message; the state's own may be of messages that are gone."""
    if not state.messages:
        return None, None
    if state.last_seq - state.first_seq + 1 == state.messages:
        return state.first_seq, state.last_seq
    first = await _next(manager, stream, 1)
    return (first, await _last(manager, stream, first, state.last_seq)) if first is not None else (None, None)


async def _next(manager: Manager, stream: str, seq: int) -> int | None:
    """The sequence of the first message from `seq` on."""
    found = await next_message(manager, stream, seq)
    return found.seq if found is not None else None


async def _last(manager: Manager, stream: str, low: int, high: int) -> int:
    """The sequence of the last message, of which `low` is one and behind `high` is none.

    The reference does not find it by a subject of `>` where the message at its last sequence is gone.
    """
    if (found := await _next(manager, stream, high)) is not None:
        return found
    while low + 1 < high:
        middle = (low + high) // 2
        if (found := await _next(manager, stream, middle)) is None:
            high = middle
        else:
            low = found
    return low
