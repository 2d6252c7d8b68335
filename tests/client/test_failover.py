"""Several servers were named, and the one that is connected to dies: what goes on with another, and what may not."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from natsctl.api.errors import ApiResponseError, NotAuthorisedError
from natsctl.client import requests
from natsctl.client.connection import Connection, ConnectionLostError
from natsctl.client.manager import Manager
from natsctl.client.stream_state import progress
from natsctl.client.system.cluster import change
from tests.client.conftest import connected

API = "$JS.API."


def answer(**raw: Any) -> bytes:
    return json.dumps(raw).encode()


def refusal(code: int) -> bytes:
    return answer(error={"code": 503, "err_code": code, "description": "refused"})


@pytest.fixture
async def both(fake: Any, other: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Connection]:
    monkeypatch.setattr(requests, "PAUSE_S", 0.001)
    async with fake.running(), other.running(), await connected(f"{fake.url},{other.url}") as connection:
        yield connection


def dies_at(fake: Any, subject: str) -> None:
    """Have a server hang up at a request, and take nobody afterwards."""
    fake.fatal.add(subject)
    fake.login_error = "Authorization Violation"


@pytest.mark.parametrize(
    ("subject", "raw"),
    [
        (f"{API}STREAM.INFO.S", {"config": {"name": "S"}}),
        (f"{API}STREAM.CREATE.S", {"config": {"name": "S"}}),
        (f"{API}STREAM.DELETE.S", {"success": True}),
    ],
)
async def test_what_may_be_repeated_goes_to_another_server(
    both: Connection, fake: Any, other: Any, subject: str, raw: dict[str, Any]
) -> None:
    said: list[str] = []
    both.notify = said.append
    dies_at(fake, subject)
    other.answers[subject] = answer(**raw)
    manager = Manager(both)
    if "INFO" in subject:
        done = await manager.stream_info("S")
    elif "CREATE" in subject:
        done = await manager.stream_create({"name": "S"})  # type: ignore[assignment]
    else:
        done = await manager.stream_delete("S")  # type: ignore[assignment]
    assert (done.raw, both.url) == (raw, other.url)
    assert len(said) == 1
    assert said[0].endswith(f"going on with {other.url}")


async def test_what_was_removed_unheard_counts_as_removed(both: Connection, fake: Any, other: Any) -> None:
    dies_at(fake, f"{API}STREAM.DELETE.S")
    other.answers[f"{API}STREAM.DELETE.S"] = refusal(10059)
    assert (await Manager(both).stream_delete("S")).raw == {"success": True}
    with pytest.raises(ApiResponseError):
        await Manager(both).stream_delete("S")


async def test_what_may_not_be_repeated_fails_and_the_next_request_goes_on(
    both: Connection, fake: Any, other: Any
) -> None:
    dies_at(fake, f"{API}STREAM.PURGE.S")
    other.answers = {f"{API}STREAM.PURGE.S": answer(success=True, purged=1), f"{API}INFO": answer(streams=1)}
    with pytest.raises(ConnectionLostError, match="was lost"):
        await Manager(both).stream_purge("S")
    assert other.published == []
    assert (await Manager(both).account_info()).raw == {"streams": 1}


@pytest.mark.parametrize("verb", ["ACCOUNT.PURGE.A", "META.LEADER.STEPDOWN", "SERVER.REMOVE"])
async def test_what_changes_an_account_or_a_cluster_is_not_repeated(
    both: Connection, fake: Any, other: Any, verb: str
) -> None:
    dies_at(fake, API + verb)
    other.answers[API + verb] = answer(success=True)
    with pytest.raises(ConnectionLostError, match="was lost"):
        await change(Manager(both), API + verb, None)
    assert other.published == []


@pytest.mark.parametrize("verb", ["STREAM.PURGE.S", "STREAM.INFO.S"])
async def test_an_election_is_waited_for(both: Connection, fake: Any, verb: str) -> None:
    fake.first[API + verb] = refusal(10008)
    fake.answers[API + verb] = answer(success=True)
    manager = Manager(both)
    done: Any = await (manager.stream_purge("S") if "PURGE" in verb else manager.stream_info("S"))
    assert done.raw == {"success": True}
    assert len(fake.published) == 2


async def test_a_report_asks_for_the_consumers_whose_leader_was_just_elected(both: Connection, fake: Any) -> None:
    listed = answer(total=3, offset=0, limit=256, consumers=[{"name": "B"}], missing=["C", "D"])
    fake.answers = {
        f"{API}STREAM.INFO.S": answer(config={"name": "S"}, state={"messages": 7}),
        f"{API}CONSUMER.LIST.S": listed,
        f"{API}CONSUMER.INFO.S.C": answer(name="C"),
        f"{API}CONSUMER.INFO.S.D": refusal(10119),
    }
    found = await progress(Manager(both), "S")
    assert ([one.raw["name"] for one in found.infos], found.missing) == (["B", "C"], ["D"])


async def test_no_server_that_takes_a_connection_is_unreachable(both: Connection, fake: Any, other: Any) -> None:
    dies_at(fake, f"{API}INFO")
    other.login_error = "Authorization Violation"
    with pytest.raises(NotAuthorisedError, match="refused the login"):
        await Manager(both).account_info()
