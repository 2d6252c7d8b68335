"""Further lists of the browser: services, dead letters, servers, and findings that need attention."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from natsctl.api.errors import NatsctlError, NotAuthorisedError, UnreachableError
from natsctl.cli.browse.catalog import AssetFacts, Catalog, CatalogSection
from natsctl.client.deadletters.capture import NoDeadLettersError, capture_streams
from natsctl.client.explain.explanation import Cause, Explanation

if TYPE_CHECKING:
    from natsctl.api.consumer import ConsumerInfo
    from natsctl.client.deadletters.letters import DeadLetter
    from natsctl.client.services import ServiceStats
    from natsctl.client.system.system_account import ServerAnswer

LETTERS_AGAIN_S: Final = 30.0
"""Seconds until dead letters are read again: each time all of them are."""
CHECKED_AGAIN_S: Final = 60.0
"""Seconds until streams are checked again."""
MAX_CHECKED: Final = 1_000
"""Maximum of streams that are checked, beginning with those on the screen."""
MAX_CONSUMERS: Final = 256
"""Consumers of a stream that are checked."""
PAUSE_S: Final = 0.01
"""Pause between two streams, so that a check takes little of the server."""


class ServiceSection(CatalogSection):
    """Services of the micro protocol by name; each has the statistics of its instances."""

    title, noun = "Services", "Service"

    async def _load(self) -> None:
        await self.refresh(())

    async def refresh(self, names: Sequence[str]) -> None:
        """Ask every instance at once: answers come together."""
        from natsctl.client.services import stats

        by_name: dict[str, list[ServiceStats]] = {}
        try:
            for answer in await stats(self.catalog.manager.connection):
                by_name.setdefault(answer.value.name, []).append(answer.value)
        except NotAuthorisedError:
            raise
        except UnreachableError:  # no service answers
            pass
        self.names, self.complete = sorted(by_name), True
        for name, instances in by_name.items():
            self.known.setdefault(name, AssetFacts()).info = instances
            self._note_rate(name)
        self.catalog.changed()

    def counter_of(self, info: list[ServiceStats]) -> int:
        return sum(endpoint.num_requests for instance in info for endpoint in instance.endpoints)

    def number_of(self, info: list[ServiceStats]) -> int:
        return len(info)


class DeadLetterSection(CatalogSection):
    """Messages that consumers gave up, the newest first."""

    title, noun = "Dead letters", "Dead letter"
    again_s = LETTERS_AGAIN_S

    async def _load(self) -> None:
        from natsctl.client.deadletters.letters import read_letters

        letters: list[DeadLetter] = []
        try:
            letters = await read_letters(self.catalog.manager)
            self.empty = "no dead letters"
        except NoDeadLettersError:
            self.empty = "no stream keeps dead letters: natsctl deadletter enable STREAM makes one"
        names = {f"{letter.stream} > {letter.consumer} {letter.seq}": letter for letter in reversed(letters)}
        self.names, self.complete = [*names], True
        for name, letter in names.items():
            facts = self.known.setdefault(name, AssetFacts())
            if facts.info is None or facts.info.time != letter.time:
                facts.info = letter

    async def refresh(self, names: Sequence[str]) -> None:
        """Look whether the messages of dead letters still exist."""
        from natsctl.client.deadletters.letters import describe

        letters = [facts.info for name in names if (facts := self.known.get(name)) is not None]
        undescribed = [letter for letter in letters if letter is not None and letter.exists is None]
        if undescribed:
            await describe(self.catalog.manager, undescribed, await capture_streams(self.catalog.manager))
            self.catalog.changed()

    def number_of(self, info: DeadLetter) -> int:
        return info.deliveries


class ServerSection(CatalogSection):
    """Servers, for users of the system account."""

    title, noun = "Servers", "Server"

    async def _load(self) -> None:
        from natsctl.client.system.system_account import System, in_system_account

        if not await in_system_account(self.catalog.manager.connection):
            self.names = []
            raise NatsctlError("servers answer to users of the system account only")
        answers = await System(self.catalog.manager).ping()
        self.names, self.complete = sorted({answer.name for answer in answers}), True

    async def info_of(self, name: str) -> ServerAnswer:
        from natsctl.client.system.system_account import System

        return await System(self.catalog.manager).ask_one(name, "VARZ")

    def counter_of(self, info: ServerAnswer) -> int:
        return int(info.data.get("in_msgs") or 0)

    def number_of(self, info: ServerAnswer) -> int:
        return int(info.data.get("connections") or 0)


class AttentionSection(CatalogSection):
    """Streams and consumers that somebody should act on: the findings of `explain` and `audit`."""

    title, noun, has_numbers = "Attention", "Finding", False

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog)
        self.places: dict[str, tuple[str, str]] = {}
        """Stream and consumer of each finding; "" for the stream itself."""
        self.empty = "nothing needs attention"

    def is_due(self, now_s: float) -> bool:
        """Return false: `check` keeps the list."""
        return False

    async def refresh(self, names: Sequence[str]) -> None:
        """Do nothing: findings come from `check`."""

    @property
    def was_loaded(self) -> bool:
        return True

    async def check(self) -> None:
        """Check streams and their consumers again and again, until this is cancelled."""
        while True:
            catalog = self.catalog
            while not (catalog.streams.complete or catalog.streams.fault):
                await asyncio.sleep(PAUSE_S * 10)
            names = [*catalog.streams.known, *catalog.streams.names, *catalog.kv.names, *catalog.objects.names]
            for stream in [*dict.fromkeys(names)][:MAX_CHECKED]:
                await self._check_stream(stream)
                await asyncio.sleep(PAUSE_S)
            known = {*catalog.streams.names, *catalog.kv.names, *catalog.objects.names, *catalog.streams.known}
            for name, (stream, _) in list(self.places.items()):
                if stream not in known:
                    self._set(name, "", "", [])
            self.complete = True
            catalog.changed()
            await asyncio.sleep(CHECKED_AGAIN_S)

    async def _check_stream(self, stream: str) -> None:
        from natsctl.client.audit.stream_checks import STREAM_READERS, near_limits
        from natsctl.client.checks import judge_stream
        from natsctl.client.explain.stream import urgent_causes

        manager = self.catalog.manager
        try:
            live = await manager.find_stream(stream)
            if live is None:
                return
            causes = await urgent_causes(manager, live.value)
            causes += [Cause(text, [], f"natsctl stream info {stream}") for text in near_limits(live.raw)]
            causes += _monitored(stream, live.raw, STREAM_READERS, judge_stream)
            self._set(stream, stream, "", causes)
            if live.value.state.consumer_count:
                await self._check_consumers(stream, live.value)
        except NatsctlError:  # the list of streams shows it
            return

    async def _check_consumers(self, stream: str, info: Any) -> None:
        from natsctl.client.audit.stream_checks import CONSUMER_READERS
        from natsctl.client.checks import judge_consumer
        from natsctl.client.explain.consumer import urgent_causes

        seen = set()
        async for page in self.catalog.manager.consumer_pages(stream):
            for answer in page:
                consumer: ConsumerInfo = answer.value
                causes = await urgent_causes(self.catalog.manager, info, consumer) if _is_busy(consumer) else []
                causes += _monitored(f"{stream} {consumer.name}", answer.raw, CONSUMER_READERS, judge_consumer)
                name = f"{stream} > {consumer.name}"
                seen.add(name)
                self._set(name, stream, consumer.name, causes)
            if len(seen) >= MAX_CONSUMERS:
                break
        for name, (place, consumer_name) in list(self.places.items()):
            if place == stream and consumer_name and name not in seen:
                self._set(name, "", "", [])

    def _set(self, name: str, stream: str, consumer: str, causes: list[Cause]) -> None:
        if causes:
            noun = "Consumer" if consumer else "Stream"
            self.places[name] = stream, consumer
            explanation = Explanation(f"{noun} {name}", causes[0].text, causes, [])
            self.known.setdefault(name, AssetFacts()).info = explanation
        elif self.places.pop(name, None) is None:
            return
        else:
            self.known.pop(name, None)
        self.names = sorted(self.places)
        self.catalog.changed()


def _is_busy(consumer: ConsumerInfo) -> bool:
    """Return whether a consumer has something to deliver or to wait for, or has never delivered anything."""
    waits = consumer.num_pending or consumer.num_ack_pending or consumer.num_redelivered
    return bool(waits or not consumer.delivered.consumer_seq or consumer.cluster)


def _monitored(name: str, raw: Any, readers: Any, judge: Any) -> list[Cause]:
    from natsctl.client.audit.stream_checks import monitoring_limits
    from natsctl.client.checks import MonitoringCheck

    try:
        limits = monitoring_limits(raw, readers)
    except ValueError as failure:
        return [Cause(f"its monitoring metadata cannot be read: {failure}", [])]
    if limits is None:
        return []
    check = MonitoringCheck(name, name)
    judge(check, raw, limits)
    return [Cause(text, ["a limit in the metadata io.nats.monitor"]) for text in (*check.critical, *check.warning)]
