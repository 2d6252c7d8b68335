"""What each change sends, and what it makes of an account that is not what the plan found; on an account in memory."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from natsctl.api.errors import ApiResponseError, ConflictError
from natsctl.client.manager import Manager
from natsctl.desired.apply.changes import Steps
from natsctl.desired.apply.execution import Done
from natsctl.desired.plan import Action, Change, Difference

Config = dict[str, Any]
Fake = Callable[..., Any]

LIVE: Config = {"name": "A", "subjects": ["A.>"], "max_age": 60}
WANTED: Config = {"subjects": ["A.>"], "max_age": 90}
OLDER = [Difference(path="max_age", old=60, new=90)]


def steps(account: Any, keeper: Any = None) -> Steps:
    return Steps(lambda: cast(Manager, account), keeper)


def stream(action: Action, **said: Any) -> Change:
    return Change(action=action, kind="Stream", stream="A", **said)


def consumer(action: Action, **said: Any) -> Change:
    return Change(action=action, kind="Consumer", stream="A", consumer="C", **said)


UPDATE = stream(Action.UPDATE, config=WANTED, before=LIVE, differences=OLDER)
REPLACE = stream(Action.REPLACE, config=WANTED, before=LIVE, differences=OLDER)


async def test_a_consumer_is_created_so_that_none_is_overwritten(fake: Fake) -> None:
    account = fake(LIVE)
    await steps(account).take(consumer(Action.CREATE, config={"ack_policy": "explicit"}))
    assert account.requests == [("create", "A > C", {"ack_policy": "explicit", "durable_name": "C"})]


async def test_a_creation_that_finds_another_asset_is_a_conflict_that_names_the_fields(fake: Fake) -> None:
    account = fake({"name": "A", "subjects": ["A.>"], "max_age": 5})
    with pytest.raises(ConflictError, match="Stream A was created meanwhile by another client, with another max_age"):
        await steps(account).take(stream(Action.CREATE, config=WANTED))
    account.consumers["A", "C"] = {"durable_name": "C", "max_deliver": 3}
    with pytest.raises(ConflictError, match="Consumer A > C was created meanwhile by another client"):
        await steps(account).take(consumer(Action.CREATE, config={"durable_name": "C"}))
    assert account.consumers["A", "C"]["max_deliver"] == 3


async def test_an_update_keeps_what_the_live_configuration_has_of_unknown_fields(fake: Fake) -> None:
    live = {**LIVE, "placement": {"cluster": "x", "zone": "new"}, "shiny": {"a": 1}}
    account = fake(live)
    wanted = {**WANTED, "placement": {"cluster": "y"}}
    differences = [*OLDER, Difference(path="placement.cluster", old="x", new="y")]
    await steps(account).take(stream(Action.UPDATE, config=wanted, before=live, differences=differences))
    _, _, sent = account.requests[0]
    assert sent == {"name": "A", **wanted, "placement": {"cluster": "y", "zone": "new"}, "shiny": {"a": 1}}


async def test_unknown_fields_of_a_source_stay_with_it_and_not_with_another(fake: Fake) -> None:
    live = {**LIVE, "sources": [{"name": "B", "hue": 1}]}
    account = fake(live)
    for name, expected in (("B", {"name": "B", "hue": 1}), ("D", {"name": "D"})):
        account.streams["A"] = dict(live)
        wanted = {**WANTED, "sources": [{"name": name}]}
        await steps(account).take(stream(Action.UPDATE, config=wanted, before=live, differences=OLDER))
        sent = account.requests[-1][2]
        assert sent is not None
        assert sent["sources"] == [expected]


async def test_an_update_of_what_has_changed_meanwhile_is_refused_and_sends_nothing(fake: Fake) -> None:
    account = fake({**LIVE, "max_age": 75, "max_msgs": 3})
    with pytest.raises(ConflictError, match="max_age, max_msgs changed meanwhile"):
        await steps(account).take(UPDATE)
    assert account.requests == []


async def test_an_update_that_somebody_has_made_already_is_done_without_a_request(fake: Fake) -> None:
    account = fake({**LIVE, "max_age": 90, "metadata": {"natsctl.owner": "default", "_nats.ver": "2"}})
    assert (await steps(account).take(UPDATE)).detail == "had been done already"
    assert account.requests == []


async def test_an_update_of_what_has_gone_is_refused(fake: Fake) -> None:
    with pytest.raises(ConflictError, match="Stream A does not exist any more"):
        await steps(fake()).take(UPDATE)


async def test_what_servers_write_into_metadata_is_no_change(fake: Fake) -> None:
    account = fake({**LIVE, "metadata": {"_nats.ver": "2.15"}})
    await steps(account).take(UPDATE)
    assert [verb for verb, _, _ in account.requests] == ["update"]


async def test_a_consumer_is_updated_so_that_none_is_made(fake: Fake) -> None:
    account = fake(LIVE)
    account.consumers["A", "C"] = {"durable_name": "C", "max_deliver": 3}
    change = consumer(Action.UPDATE, config={"durable_name": "C"}, before={"durable_name": "C", "max_deliver": 3})
    await steps(account).take(change)
    assert account.requests == [("update", "A > C", {"durable_name": "C"})]


async def test_a_removal_is_done_where_it_is_gone_and_refused_where_it_has_changed(fake: Fake) -> None:
    change = stream(Action.DELETE, before=LIVE)
    assert (await steps(fake()).take(change)).detail == "was already deleted"
    changed = fake({**LIVE, "max_age": 1})
    with pytest.raises(ConflictError, match="max_age"):
        await steps(changed).take(change)
    assert "A" in changed.streams
    gone = fake(LIVE)
    await steps(gone).take(change)
    assert gone.requests == [("delete", "A", None)]


async def test_a_replacement_that_is_refused_leaves_the_asset_as_it_was_configured(fake: Fake) -> None:
    account = fake(LIVE)
    account.refused["create A"] = 10052
    with pytest.raises(ApiResponseError) as caught:
        await steps(account).take(REPLACE)
    assert "as it was configured before, without its messages" in caught.value.hint
    assert account.streams["A"] == LIVE


async def test_a_stream_that_has_no_place_for_a_moment_is_asked_for_again(fake: Fake) -> None:
    account = fake(LIVE)
    account.refused = {"create A": 10049}
    await steps(account).take(REPLACE)
    assert [verb for verb, _, _ in account.requests] == ["delete", "create", "create"]
    assert account.streams["A"] == {**WANTED, "name": "A"}


async def test_a_replacement_of_what_has_changed_meanwhile_removes_nothing(fake: Fake) -> None:
    account = fake({**LIVE, "max_age": 75})
    with pytest.raises(ConflictError):
        await steps(account).take(REPLACE)
    assert account.requests == []


async def test_a_replacement_that_is_cancelled_after_the_removal_still_creates(fake: Fake) -> None:
    account = fake(LIVE)
    removed = account.stream_delete
    door = asyncio.Event()

    async def slowly(name: str) -> Any:
        answer = await removed(name)
        await door.wait()
        return answer

    account.stream_delete = slowly
    task = asyncio.create_task(steps(account).take(REPLACE))
    while "A" in account.streams:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    door.set()
    await task
    assert account.streams["A"]["max_age"] == 90


class Restoring:
    """A keeper that brings the consumers of the account back with the stream, as a restore does."""

    def __init__(self, account: Any) -> None:
        self._account = account

    async def replace(self, change: Change, live: Config) -> Done:
        self._account.streams[change.stream] = {**(change.config or {}), "name": change.stream}
        return Done("kept 3 messages")


@pytest.mark.parametrize(
    ("refused", "verbs"), [(False, ["create", "update"]), (True, ["create", "update", "delete", "create"])]
)
async def test_a_consumer_that_came_back_with_its_stream_is_brought_to_what_is_wanted(
    fake: Fake, refused: bool, verbs: list[str]
) -> None:
    account = fake(LIVE)
    account.consumers["A", "C"] = {"durable_name": "C", "max_deliver": 3}
    doing = steps(account, Restoring(account))
    assert (await doing.take(REPLACE)).detail == "kept 3 messages"
    if refused:
        account.refused["update A > C"] = 10012
    done = await doing.take(consumer(Action.CREATE, config={"durable_name": "C", "max_deliver": 9}))
    assert account.consumers["A", "C"]["max_deliver"] == 9
    assert [verb for verb, _, _ in account.requests] == verbs
    assert bool(done.warnings) is refused


async def test_a_pause_is_begun_by_its_own_request_after_the_update(fake: Fake) -> None:
    account = fake(LIVE)
    account.consumers["A", "C"] = {"durable_name": "C"}
    until = "2100-01-01T00:00:00Z"
    config = {"durable_name": "C", "pause_until": until}
    differences = [Difference(path="pause_until", new=until)]
    change = consumer(Action.UPDATE, config=config, before={"durable_name": "C"}, differences=differences)
    await steps(account).take(change)
    assert account.requests == [("update", "A > C", config), ("pause", "A > C", {"pause_until": until})]


async def test_a_removal_that_is_refused_makes_nothing_again(fake: Fake) -> None:
    account = fake(LIVE)
    account.refused["delete A"] = 10052
    with pytest.raises(ApiResponseError) as caught:
        await steps(account).take(REPLACE)
    assert caught.value.hint == ""
    assert account.requests == [("delete", "A", None)]
