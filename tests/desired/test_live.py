"""The account as it is read for a plan, while a cluster elects leaders."""

from typing import Any

import pytest

from natsctl.api.catalogue import error
from natsctl.api.errors import ApiResponseError
from natsctl.client.requests import Answer
from natsctl.desired.assets import AssetKey
from natsctl.desired.live import read_live_state


class Electing:
    """An account with the stream S, whose list of consumers lacks C: its leader did not answer."""

    def __init__(self, code: int = 0) -> None:
        self.requests = self.connection = self
        self.info: dict[str, Any] = {}
        self._code = code

    async def account_info(self) -> Answer[Any]:
        return Answer(dict, "fake", raw={})

    async def stream_info(self, name: str) -> Answer[Any]:
        return Answer(dict, "fake", raw={"config": {"name": name}, "state": {"consumer_count": 2}})

    async def pages(self, *words: Any) -> list[dict[str, Any]]:
        return [{"consumers": [{"name": "B"}], "missing": ["C"]}]

    async def consumer_info(self, stream: str, name: str) -> Answer[Any]:
        if self._code:
            raise ApiResponseError(error(self._code))
        return Answer(dict, "fake", raw={"name": name})


async def test_consumers_that_a_list_lacks_are_asked_for_one_by_one() -> None:
    live_state = await read_live_state(Electing(), {"S"})  # type: ignore[arg-type]
    assert set(live_state.assets) == {AssetKey("S"), AssetKey("S", "B"), AssetKey("S", "C")}


async def test_a_consumer_that_has_gone_meanwhile_is_not_there() -> None:
    live_state = await read_live_state(Electing(10014), {"S"})  # type: ignore[arg-type]
    assert set(live_state.assets) == {AssetKey("S"), AssetKey("S", "B")}


async def test_a_consumer_that_nobody_shows_fails_the_reading() -> None:
    with pytest.raises(ApiResponseError) as raised:
        await read_live_state(Electing(10119), {"S"})  # type: ignore[arg-type]
    assert raised.value.hint == "the server could not show consumer S > C"
