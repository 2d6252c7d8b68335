"""Pages of a stream's messages, in both directions from any place, without a consumer.

Messages are read with direct gets in batches, or one by one where the stream or the user does not allow them. A page
after the last one begins at its end. A page before the first one is searched backwards in ranges of sequences
that double while too few of their messages pass the filter, because no server reads backwards.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, NamedTuple

from natsctl.api.archive.archive import ArchivedMessage
from natsctl.api.errors import NotAuthorisedError, UsageError
from natsctl.api.times import parse_time
from natsctl.cli.framework.command_line import command_of, take_out
from natsctl.client.backup.selection import MessageSelection
from natsctl.client.backup.writer import stored_record
from natsctl.client.message import as_bytes
from natsctl.client.stream_state import next_message, sequence_at

if TYPE_CHECKING:
    from natsctl.api.answers import StreamInfoAnswer
    from natsctl.api.requests import StoredMsg
    from natsctl.client.manager import Manager
    from natsctl.client.requests import Answer

PAGE: Final = 50
"""Messages of a page."""
MAX_KEPT: Final = 2_000
"""Messages that are kept; with more the far end is dropped, and read again when it is looked at."""
MAX_KEPT_BYTES: Final = 32 * 1024 * 1024
MAX_SEARCHED: Final = 20_000
"""Messages that one page reads at most to fill itself through a filter."""
MAX_RANGE: Final = 1 << 20
"""Sequences of one range of a search backwards."""


class MessageQuery(NamedTuple):
    """The messages to show, by the arguments and flags of `natsctl stream search`."""

    text: str = ""
    selection: MessageSelection = MessageSelection()
    test: Callable[[ArchivedMessage], bool] | None = None

    @classmethod
    def parse(cls, text: str) -> MessageQuery:
        """Return the query of a line such as `--subject a.* --since 1h --expression 'json.total > 9' word`."""
        from natsctl.cli.stream.search import message_test, search, selection_with

        command = command_of(search)
        try:
            line = shlex.split(text)
        except ValueError as failure:
            raise UsageError(f"the filter is not complete: {failure}") from failure
        _, words = take_out(["STREAM", *line], command.flags)
        values = command.values(words, "natsctl stream search")
        selection = selection_with(command.given(values), values["pattern"], values["fixed"], values["ignore_case"])
        return cls(text, selection, message_test(values["expression"]))

    def passes(self, message: ArchivedMessage) -> bool:
        return self.selection(message) and (self.test is None or self.test(message))


EVERYTHING: Final = MessageQuery()


class MessagePages:
    """Messages of a stream around one place, ascending."""

    def __init__(self, manager: Manager, stream: str, query: MessageQuery = EVERYTHING) -> None:
        self.manager = manager
        self.stream = stream
        self.query = query
        self.messages: list[ArchivedMessage] = []
        self.at_start = self.at_end = False
        self.searched_from = self.searched_to = 0
        """Range of sequences that `messages` are all matches of."""
        self.first_seq, self.last_seq = 1, 0
        """Sequences of the stream within the bounds of the query."""
        self._direct = True
        self._bounds: tuple[int, int] | None = None

    # -- places

    async def newest(self) -> None:
        await self.look()
        self._empty(self.last_seq + 1)
        await self.older()
        self.at_end = True

    async def oldest(self) -> None:
        await self.look()
        self._empty(self.first_seq)
        await self.newer()
        self.at_start = True

    async def show(self, seq: int) -> None:
        await self.look()
        self._empty(max(seq, self.first_seq))
        await self.newer()

    async def look(self) -> None:
        live: Answer[StreamInfoAnswer] = await self.manager.stream_info(self.stream)
        state, pick = live.value.state, self.query.selection
        self._direct = self._direct and live.value.config.allow_direct
        if self._bounds is None:
            first = await sequence_at(self.manager, live, pick.since_ns) if pick.since_ns else 1
            last = await sequence_at(self.manager, live, pick.until_ns + 1) - 1 if pick.until_ns else 0
            last = min(last or 1 << 63, pick.last_seq or 1 << 63)
            self._bounds = max(first, pick.first_seq, 1), last
        self.first_seq = max(self._bounds[0], state.first_seq)
        self.last_seq = min(self._bounds[1], state.last_seq)

    def _empty(self, seq: int) -> None:
        self.messages, self.at_start, self.at_end = [], False, False
        self.searched_from, self.searched_to = seq, seq - 1

    # -- pages

    async def newer(self, count: int = PAGE) -> int:
        """Add the page after the last message, and return how many came."""
        came = await self._between(self.searched_to + 1, self.last_seq, count)
        self.messages += came
        self.at_end = self.searched_to >= self.last_seq
        while len(self.messages) > MAX_KEPT or self._bytes() > MAX_KEPT_BYTES:
            dropped = self.messages[:PAGE]
            del self.messages[:PAGE]
            self.searched_from, self.at_start = dropped[-1].seq + 1, False
        return len(came)

    async def older(self, count: int = PAGE) -> int:
        """Add the page before the first message, and return how many came."""
        came: list[ArchivedMessage] = []
        end, high, size, read = self.searched_to, self.searched_from - 1, count, 0
        while high >= self.first_seq and len(came) < count and read < MAX_SEARCHED:
            low = max(self.first_seq, high - size + 1)
            page = await self._between(low, high, high - low + 1)
            came = page + came
            read += len(page) if self.query.test is None else high - low + 1
            high, size = low - 1, min(2 * size if len(page) < count // 2 else size, MAX_RANGE)
        extra = came[: max(0, len(came) - count)]
        self.searched_from = extra[-1].seq + 1 if extra else high + 1
        self.searched_to = end
        self.at_start = self.searched_from <= self.first_seq
        came = came[len(extra) :]
        self.messages = came + self.messages
        while len(self.messages) > max(MAX_KEPT, len(came)) or (len(self.messages) > PAGE and self._too_big()):
            self.searched_to, self.at_end = self.messages[-PAGE].seq - 1, False
            del self.messages[-PAGE:]
        return len(came)

    def _bytes(self) -> int:
        return sum(len(message.payload) for message in self.messages)

    def _too_big(self) -> bool:
        return self._bytes() > MAX_KEPT_BYTES

    async def _between(self, first: int, last: int, count: int) -> list[ArchivedMessage]:
        """Return the first `count` messages of a range that pass; `searched_to` is where reading ended."""
        matches: list[ArchivedMessage] = []
        read = 0
        async with aclosing(self._stored(first, last, count)) as messages:
            async for message in messages:
                read += 1
                if message.seq > last:
                    break
                self.searched_to = message.seq
                if self.query.passes(message):
                    matches.append(message)
                if len(matches) == count or read >= MAX_SEARCHED:
                    return matches
        self.searched_to = max(self.searched_to, last)
        return matches

    # -- reading

    async def _stored(self, first: int, last: int, count: int) -> AsyncGenerator[ArchivedMessage, None]:
        if first > last:
            return
        if self._direct:
            try:
                async for message in self._by_batch(first, count):
                    yield message
                    first = message.seq + 1
                return
            except NotAuthorisedError:
                self._direct = False
        async for message in self._one_by_one(first, last, count):
            yield message

    async def _by_batch(self, first: int, count: int) -> AsyncGenerator[ArchivedMessage, None]:
        from natsctl.client.messaging.feed import DirectFeed, widest

        subjects = widest(self.query.selection.subjects)
        size = max(2, min(count, PAGE))
        feed = DirectFeed(self.manager, self.stream, subjects, {"seq": first}, to_end=True, batch=size)
        async with feed:
            while (message := await feed.next()) is not None:
                yield stored_record(message)

    async def _one_by_one(self, first: int, last: int, count: int) -> AsyncGenerator[ArchivedMessage, None]:
        """Yield messages by single requests: side by side by sequence, in order by subject."""
        subjects = self.query.selection.subjects
        pattern = subjects[0] if len(subjects) == 1 else ">"
        while first <= last:
            if pattern == ">":
                block = range(first, min(first + min(count, PAGE), last + 1))
                answers = await asyncio.gather(*(self.manager.find_message(self.stream, seq=seq) for seq in block))
                stored = [answer.value.message for answer in answers if answer is not None]
                for message in stored:
                    yield _record(message)
                if stored:
                    first = block[-1] + 1
                    continue
            following = await next_message(self.manager, self.stream, first, pattern)
            if following is None or following.seq > last:
                return
            yield _record(following)
            first = following.seq + 1


def _record(message: StoredMsg) -> ArchivedMessage:
    return ArchivedMessage(
        message.seq, parse_time(message.time), as_bytes(message.subject), message.hdrs or b"", message.data or b""
    )
