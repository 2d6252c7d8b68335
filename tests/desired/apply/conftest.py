"""What changes are tried on: an account in memory that answers as servers do, and servers without streams."""

from typing import Any

import pytest

from natsctl.api.catalogue import error
from natsctl.api.errors import ApiResponseError
from natsctl.client.requests import Answer
from tests.support.servers import manager, server, started

__all__ = ["manager", "server", "started"]

Config = dict[str, Any]


class FakeAccount:
    """Streams and consumers by name; `requests` has every changing one as (verb, asset, configuration)."""

    def __init__(self, *streams: Config) -> None:
        self.streams: dict[str, Config] = {config["name"]: dict(config) for config in streams}
        self.consumers: dict[tuple[str, str], Config] = {}
        self.requests: list[tuple[str, str, Config | None]] = []
        self.refused: dict[str, int] = {}
        """The error that the next changing request about an asset gets."""

    def answered(self, **raw: Any) -> Answer[Any]:
        return Answer(dict, "fake", raw=raw)

    def _changes(self, verb: str, asset: str, config: Config | None = None) -> None:
        self.requests.append((verb, asset, config))
        number = self.refused.pop(f"{verb} {asset}", 0)
        if number:
            raise ApiResponseError(error(number, err="refused"))

    def _stream(self, name: str) -> Config:
        if name not in self.streams:
            raise ApiResponseError(error(10059))
        return self.streams[name]

    async def stream_info(self, name: str) -> Answer[Any]:
        return self.answered(config=dict(self._stream(name)), state={})

    async def stream_create(self, config: Config) -> Answer[Any]:
        name = config["name"]
        self._changes("create", name, config)
        if self.streams.get(name, config) != config:
            raise ApiResponseError(error(10058))
        self.streams[name] = dict(config)
        return self.answered(config=config)

    async def stream_update(self, config: Config) -> Answer[Any]:
        self._stream(config["name"])
        self._changes("update", config["name"], config)
        self.streams[config["name"]] = dict(config)
        return self.answered(config=config)

    async def stream_delete(self, name: str) -> Answer[Any]:
        self._stream(name)
        self._changes("delete", name)
        del self.streams[name]
        self.consumers = {key: config for key, config in self.consumers.items() if key[0] != name}
        return self.answered(success=True)

    async def consumer_info(self, stream: str, name: str) -> Answer[Any]:
        self._stream(stream)
        if (stream, name) not in self.consumers:
            raise ApiResponseError(error(10014))
        return self.answered(config=dict(self.consumers[stream, name]))

    async def consumer_create(self, stream: str, config: Config, *, action: str = "") -> Answer[Any]:
        key = (stream, config.get("durable_name") or config["name"])
        self._stream(stream)
        self._changes(action, " > ".join(key), config)
        there = self.consumers.get(key)
        if action == "create" and there is not None and there != config:
            raise ApiResponseError(error(10148))
        if action == "update" and there is None:
            raise ApiResponseError(error(10149))
        self.consumers[key] = dict(config)
        return self.answered(config=config)

    async def consumer_pause(self, stream: str, name: str, until: str = "") -> Answer[Any]:
        self._changes("pause", f"{stream} > {name}", {"pause_until": until})
        return self.answered(paused=bool(until))

    async def consumer_delete(self, stream: str, name: str) -> Answer[Any]:
        self._changes("delete", f"{stream} > {name}")
        if self.consumers.pop((stream, name), None) is None:
            raise ApiResponseError(error(10014))
        return self.answered(success=True)


@pytest.fixture
def fake() -> type[FakeAccount]:
    """What an account in memory is made of: `fake(*streams)`."""
    return FakeAccount
