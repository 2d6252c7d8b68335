"""The lists of the browser: names of streams, buckets, consumers, services and servers, and facts of each.

A list shows its names as soon as their first page has come; further pages follow in the background. State and
rate are asked for rows on the screen only, once in a while, so that an account with many thousand streams costs no more
than one with twenty. A refusal of the server is shown in its list or row.

Data flows one way: the catalog asks the server and calls `changed`; widgets read it and change nothing in it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from natsctl.api.errors import ApiResponseError, ErrCode, NatsctlError, NotAuthorisedError
from natsctl.client.buckets import KV, OBJECTS

if TYPE_CHECKING:
    from natsctl.api.consumer import ConsumerInfo
    from natsctl.api.stream import StreamInfo
    from natsctl.client.manager import Manager

HISTORY: Final = 12
"""Rates that a row keeps for its sparkline."""
NAMES_AGAIN_S: Final = 5.0
"""Seconds until the names of a list are asked for again."""
MIN_INTERVAL_S: Final = 0.5
"""Seconds between two counters that a rate is made of."""
AT_ONCE: Final = 16
"""Rows that are asked for at a time."""


class AssetFacts:
    """Facts of one row: the server's last answer, its rates, or why it cannot be shown."""

    __slots__ = ("counter", "fault", "history", "info", "noted_s", "rate")

    def __init__(self) -> None:
        self.info: Any = None
        self.fault = ""
        self.rate = self.noted_s = 0.0
        self.counter = 0
        self.history: deque[float] = deque(maxlen=HISTORY)


class CatalogSection:
    """One list: `names` in order, and the facts of the rows that were on the screen."""

    title = ""
    again_s = NAMES_AGAIN_S
    """Seconds until the names are asked for again."""
    has_numbers = True
    """Whether rows show rates and a number."""
    counts_bytes = False
    """Whether the number is one of bytes."""
    noun = ""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.names: list[str] = []
        self.known: dict[str, AssetFacts] = {}
        self.complete = False
        """Whether `names` are all names."""
        self.fault = ""
        self.empty = f"no {self.title[0].lower()}{self.title[1:]}" if self.title[1:2].islower() else f"no {self.title}"
        self.named: list[str] = []
        self._loaded_s = 0.0

    @property
    def count(self) -> str:
        """Return the number of entries: `?` before the first answer, `+` after it while more are to come."""
        if self.fault:
            return "–"
        if not self.complete and not self.names:
            return "…"
        return f"{len(self.names):,}{'' if self.complete else '+'}"

    def facts(self, name: str) -> AssetFacts:
        return self.known.get(name) or AssetFacts()

    @property
    def was_loaded(self) -> bool:
        return self._loaded_s > 0

    def expire(self) -> None:
        self._loaded_s = min(self._loaded_s, self.catalog.clock() - self.again_s)

    def add(self, name: str) -> None:
        """Add an entry that the list does not show, because the user may not list it."""
        self.named.append(name)
        self.names = [name, *self.names]

    def is_due(self, now_s: float) -> bool:
        """Return whether the names have to be asked for."""
        return not self._loaded_s or now_s - self._loaded_s >= self.again_s

    async def load(self) -> None:
        """Ask for the names; a refusal becomes the list's fault."""
        self._loaded_s = self.catalog.clock()
        try:
            await self._load()
            self.fault = ""
        except NatsctlError as failure:
            self.fault = str(failure)
        self._loaded_s = self.catalog.clock()
        listed = set(self.names)
        self.names = [*(name for name in self.named if name not in listed), *self.names]
        for name in self.known.keys() - set(self.names):
            del self.known[name]
        self.catalog.changed()

    async def _load(self) -> None:
        raise NotImplementedError

    async def refresh(self, names: Sequence[str]) -> None:
        for begin in range(0, len(names), AT_ONCE):
            await asyncio.gather(*(self._refresh(name) for name in names[begin : begin + AT_ONCE]))
        self.catalog.changed()

    async def _refresh(self, name: str) -> None:
        facts = self.known.setdefault(name, AssetFacts())
        try:
            facts.info = await self.info_of(name)
            facts.fault = ""
        except ApiResponseError as failure:
            facts.fault = str(failure)
            if failure.err_code in (ErrCode.STREAM_NOT_FOUND, ErrCode.CONSUMER_NOT_FOUND):
                self._loaded_s = 0.0  # it was removed: the names are asked for again
        except NatsctlError as failure:
            facts.fault = "not allowed" if isinstance(failure, NotAuthorisedError) else str(failure)
        else:
            self._note_rate(name)

    def _note_rate(self, name: str) -> None:
        facts, now_s = self.known[name], self.catalog.clock()
        if now_s - facts.noted_s >= MIN_INTERVAL_S:
            counter = self.counter_of(facts.info)
            if facts.noted_s:
                more = counter - facts.counter if counter >= facts.counter else counter
                facts.rate = more / (now_s - facts.noted_s)
            facts.history.append(facts.rate)
            facts.counter, facts.noted_s = counter, now_s

    def label(self, name: str) -> str:
        return name

    async def info_of(self, name: str) -> Any:
        raise NotImplementedError

    def counter_of(self, info: Any) -> int:
        return 0

    def number_of(self, info: Any) -> int:
        return 0


class StreamSection(CatalogSection):
    title, noun = "Streams", "Stream"

    async def _load(self) -> None:
        """Load the names of streams and buckets."""
        kv, objects = self.catalog.kv, self.catalog.objects
        lists: tuple[CatalogSection, ...] = (self, kv, objects)
        names: dict[CatalogSection, list[str]] = {section: [] for section in lists}
        try:
            async for page in self._name_pages():
                for name in page:
                    section: CatalogSection = kv if KV.is_mine(name) else objects if OBJECTS.is_mine(name) else self
                    names[section].append(name)
                for listed in lists:
                    if not listed.complete:
                        listed.names = list(names[listed])
                self.catalog.changed()
        except NatsctlError as failure:
            kv.fault = objects.fault = str(failure)
            raise
        for listed in lists:
            listed.names, listed.complete, listed.fault = names[listed], True, ""

    async def _name_pages(self) -> AsyncIterator[list[str]]:
        """Yield names by page; a user who may not ask for names may be allowed the list."""
        manager = self.catalog.manager
        try:
            async for names in manager.stream_name_pages():
                yield names
        except NotAuthorisedError as refused:
            try:
                async for page in manager.stream_pages():
                    yield [answer.value.config.name for answer in page]
            except NotAuthorisedError:
                raise refused from None

    async def info_of(self, name: str) -> StreamInfo:
        return (await self.catalog.manager.stream_info(name)).value  # type: ignore[return-value]  # the same fields

    def counter_of(self, info: StreamInfo) -> int:
        return info.state.last_seq

    def number_of(self, info: StreamInfo) -> int:
        return info.state.messages


class KeyValueSection(StreamSection):
    title, noun = "KV buckets", "KV bucket"

    async def _load(self) -> None:
        """Names come with those of the streams."""
        await self.catalog.streams.load()
        self.fault = self.catalog.streams.fault

    def label(self, name: str) -> str:
        return name.partition("_")[2]


class ObjectSection(KeyValueSection):
    title, noun, counts_bytes = "Object buckets", "Object bucket", True

    def number_of(self, info: StreamInfo) -> int:
        return info.state.bytes


class ConsumerSection(CatalogSection):
    """Consumers of the stream that was selected last."""

    title, noun = "Consumers", "Consumer"

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog)
        self.stream = ""

    @property
    def count(self) -> str:
        """Return the number of consumers, by the stream's state until they are listed."""
        info = self.catalog.streams.facts(self.stream).info
        return super().count if self.was_loaded or info is None else f"{info.state.consumer_count:,}"

    def choose(self, stream: str) -> None:
        if stream != self.stream:
            self.stream, self.names, self.known, self.complete, self.fault = stream, [], {}, False, ""
            self._loaded_s = 0.0

    async def _load(self) -> None:
        stream = self.stream
        if not stream:
            self.complete = True
            return
        names: list[str] = []
        async for page in self.catalog.manager.consumer_name_pages(stream):
            names += page
            if stream != self.stream:
                return
            if not self.complete:
                self.names = list(names)
                self.catalog.changed()
        if stream == self.stream:
            self.names, self.complete = names, True

    async def info_of(self, name: str) -> ConsumerInfo:
        return (await self.catalog.manager.consumer_info(self.stream, name)).value

    def counter_of(self, info: ConsumerInfo) -> int:
        return info.delivered.consumer_seq

    def number_of(self, info: ConsumerInfo) -> int:
        return info.num_pending


class Catalog:
    """All lists of one connection; `changed` is called after each answer."""

    def __init__(self, manager: Manager, changed: Callable[[], None] = lambda: None) -> None:
        self.manager = manager
        self.changed = changed
        self.clock: Callable[[], float] = time.monotonic
        from natsctl.cli.browse import sections

        self.streams = StreamSection(self)
        self.consumers = ConsumerSection(self)
        self.kv = KeyValueSection(self)
        self.objects = ObjectSection(self)
        self.services = sections.ServiceSection(self)
        self.letters = sections.DeadLetterSection(self)
        self.servers = sections.ServerSection(self)
        self.attention = sections.AttentionSection(self)

    @property
    def sections(self) -> tuple[CatalogSection, ...]:
        assets = (self.streams, self.consumers, self.kv, self.objects)
        return (self.attention, *assets, self.services, self.letters, self.servers)
