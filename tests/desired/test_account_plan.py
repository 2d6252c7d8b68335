"""Plans on live servers: what was made from documents is as described, and each field changed by hand is named."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from natsctl.client.manager import Manager
from natsctl.desired.assets import DocumentSet
from natsctl.desired.plan import Plan
from natsctl.desired.planner import DEFAULT, PlanOptions, plan_for
from natsctl.testing.process import Kind, ServerProcess
from tests.desired.sets import SECOND, actions, documents, key_of, paths
from tests.support.random_programs import Maker
from tests.support.servers import managing

T = TypeVar("T")
Config = dict[str, Any]
HOUR = 3600 * SECOND
CAPS = "jetstream { limits { duplicate_window: 30s, max_request_batch: 256, max_ack_pending: 300 } }"
KINDS = ["natsctl", "reference"]


def on_server(url: str, work: Callable[[Manager], Awaitable[T]]) -> T:
    async def run() -> T:
        async with managing(url) as manager:
            return await work(manager)

    return asyncio.run(run())


async def put(manager: Manager, name: str, config: Config, verb: str = "CREATE") -> bool:
    """Make or change an asset as `STREAM` or `STREAM > CONSUMER`; whether the server took it."""
    key = key_of(name)
    subject, body = f"$JS.API.STREAM.{verb}.{name}", {"name": name, **config}
    if key.consumer:
        subject = f"$JS.API.CONSUMER.CREATE.{key.stream}.{key.consumer}"
        body = {"stream_name": key.stream, "config": {**config, "name": key.consumer}}
    answer = await manager.connection.request(subject, json.dumps(body).encode())
    return "error" not in json.loads(answer.body)


async def made(manager: Manager, wanted: DocumentSet) -> Plan:
    """The plan for documents after all of them were carried out as the first plan said."""
    for change in (await plan_for(manager, wanted)).changes:
        name = f"{change.stream} > {change.consumer}" if change.consumer else change.stream
        assert await put(manager, name, change.config or {}), change
    return await plan_for(manager, wanted)


def random_assets(streams: int, consumers: int) -> dict[str, Config]:
    found: dict[str, Config] = {}
    for seed in range(streams):
        maker, name = Maker(seed, True), f"R{seed}"
        fields = {key: value for key, value in maker.stream_fields(name).items() if key != "sealed"}
        found[name] = {"subjects": [f"r{seed}.>"], **fields}
        if seed % 4 == 3:
            (word, said), *_ = maker.upstream(name).items()
            (said[0] if word == "sources" else said)["name"] = f"R{seed - 1}" if seed % 8 == 3 else "ELSEWHERE"
            found[name][word] = said
            found[name].pop("subjects") if word == "mirror" else None
    maker = Maker(1)
    for number in range(consumers):
        host = f"R{number % streams}"
        fields = maker.consumer_fields(host)
        durable = {"durable_name": f"c{number}"} if number % 3 else {"name": f"c{number}", "inactive_threshold": HOUR}
        found[f"{host} > c{number}"] = {**fields, **durable}
    return found


@pytest.mark.both
@pytest.mark.parametrize("streams", [24, pytest.param(80, marks=pytest.mark.fuzz)])
def test_random_configurations_are_as_described_when_they_have_been_made(server: ServerProcess, streams: int) -> None:
    async def work(manager: Manager) -> tuple[int, Plan]:
        wanted = random_assets(streams, streams * 3 // 2)
        taken = {name: config for name, config in wanted.items() if await put(manager, name, config)}
        return len(taken), await plan_for(manager, documents(taken))

    count, plan = on_server(server.url, work)
    assert [(str(one.key), one.differences, one.refused) for one in plan.changes] == []
    assert plan.unchanged == count > streams // 2


STREAM_FIELDS: Config = {
    "description": "by hand", "subjects": ["a.>", "c"], "retention": "interest", "max_msgs": 9, "max_bytes": 10**6,
    "max_age": HOUR, "max_msgs_per_subject": 7, "max_msg_size": 99, "discard": "new", "duplicate_window": SECOND,
    "no_ack": True, "compression": "s2", "allow_direct": False, "deny_delete": True, "deny_purge": True,
    "allow_rollup_hdrs": True, "allow_msg_ttl": True, "allow_atomic": True, "metadata": {"team": "x"},
    "consumer_limits": {"max_ack_pending": 2000}, "republish": {"src": "a.x", "dest": "again"},
    "subject_transform": {"src": "a.x", "dest": "a.y"}, "sources": [{"name": "ELSEWHERE"}],
    "placement": {"tags": ["ssd"]}, "max_consumers": 50,
}  # fmt: skip
CONSUMER_FIELDS: Config = {
    "description": "by hand", "ack_wait": HOUR, "max_deliver": 7, "filter_subject": "a.x", "sample_freq": "10",
    "max_ack_pending": 77, "headers_only": True, "max_batch": 7, "max_expires": SECOND, "max_bytes": 70,
    "inactive_threshold": HOUR, "metadata": {"team": "x"}, "backoff": [30 * SECOND, HOUR], "num_replicas": 1,
}  # fmt: skip
NAMED = {
    "metadata": "metadata.team",
    "consumer_limits": "consumer_limits.max_ack_pending",
    "sources": "sources[ELSEWHERE]",
}


@pytest.mark.both
def test_each_field_that_was_changed_by_hand_is_named_where_it_is_mentioned_and_no_other(server: ServerProcess) -> None:
    stream: Config = {"subjects": ["a.>", "b"], "duplicate_window": 120 * SECOND, "allow_direct": True}
    consumer = {"durable_name": "c", "ack_policy": "explicit", "max_deliver": 5}
    nulls: Config = {"A": dict.fromkeys(STREAM_FIELDS), "A > c": dict.fromkeys(CONSUMER_FIELDS)}
    at_first = documents({"A": nulls["A"] | stream, "A > c": nulls["A > c"] | consumer})
    few = documents({"A": {"subjects": stream["subjects"]}, "A > c": {"durable_name": "c"}})

    async def work(manager: Manager) -> None:
        # nats-server removes the folder of an account's last stream after its answer, under the feet of the next one.
        await manager.stream_create({"name": "KEPT", "subjects": ["kept"]})
        assert (await made(manager, at_first)).changes == []
        for name, value in STREAM_FIELDS.items():
            assert await put(manager, "A", {**stream, name: value}, "UPDATE"), name
            found = (await plan_for(manager, at_first)).changes
            assert [(str(one.key), paths(one)) for one in found if one.differences] == [
                ("Stream A", [NAMED.get(name, name)])
            ]
            if name != "subjects":
                assert (await plan_for(manager, few)).changes == []
            await manager.stream_delete("A")  # not all of it can be taken back
            server.await_removals()
            assert (await made(manager, at_first)).changes == []
        for name, value in CONSUMER_FIELDS.items():
            assert await put(manager, "A > c", {**consumer, name: value}), name
            found = (await plan_for(manager, at_first)).changes
            assert [(str(one.key), paths(one)) for one in found] == [("Consumer A > c", [NAMED.get(name, name)])]
            assert (await plan_for(manager, few)).changes == []

    on_server(server.url, work)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_caps_what_it_fills_in_gives_no_drift_and_hides_none(kind: Kind, tmp_path: Path) -> None:
    config = tmp_path / "caps.conf"
    config.write_text(CAPS)
    wanted = documents(
        {
            "A": {"subjects": ["a"], "duplicate_window": None},
            "B": {"subjects": ["b"], "duplicate_window": SECOND},
            "A > c": {"durable_name": "c", "ack_policy": "explicit"},
            "A > d": {"durable_name": "d", "ack_policy": "explicit", "max_batch": 10, "max_ack_pending": 5},
        }
    )

    async def work(manager: Manager) -> tuple[Plan, Plan, list[str], list[str]]:
        same = await made(manager, wanted)
        await put(manager, "A", {"subjects": ["a"], "duplicate_window": SECOND}, "UPDATE")
        found = await plan_for(manager, wanted)
        return same, found, list(await manager.stream_names()), list(await manager.consumer_names("A"))

    with ServerProcess(tmp_path / "store", kind, "-c", str(config)) as server:
        same, found, streams, consumers = on_server(server.url, work)
    assert (same.changes, same.unchanged) == ([], 4)
    assert [(one.path, one.old, one.new) for change in found.changes for one in change.differences] == [
        ("duplicate_window", SECOND, 30 * SECOND)
    ]
    assert (streams, consumers) == (["A", "B"], ["c", "d"])


@pytest.mark.both
def test_an_account_is_read_as_far_as_a_plan_needs_it(server: ServerProcess) -> None:
    async def work(manager: Manager) -> tuple[Plan, Plan]:
        mine = documents({"A": {"subjects": ["a"]}, "OLD": {"subjects": ["old"]}, "OLD > c": {"durable_name": "c"}})
        await made(manager, mine)
        wanted = documents({"A": {"subjects": ["a"]}, "M": {"mirror": {"name": "A"}}})
        return await plan_for(manager, wanted), await plan_for(manager, wanted, PlanOptions(prune=True))

    some, whole = on_server(server.url, work)
    assert actions(some) == [("create", "M")]
    assert sorted(actions(whole)) == [("create", "M"), ("delete", "OLD")]


@pytest.mark.both
def test_many_consumers_are_read_over_all_pages(server: ServerProcess) -> None:
    wanted = documents(
        {"A": {"subjects": ["a"], "storage": "memory"}}
        | {f"A > c{number}": {"durable_name": f"c{number}"} for number in range(300)}
    )

    async def work(manager: Manager) -> Plan:
        await put(manager, "A", {"subjects": ["a"], "storage": "memory"})
        await asyncio.gather(*(put(manager, f"A > c{number}", {"durable_name": f"c{number}"}) for number in range(300)))
        return await plan_for(manager, wanted, DEFAULT)

    plan = on_server(server.url, work)
    assert (plan.changes, plan.unchanged) == ([], 301)
