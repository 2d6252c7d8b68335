"""Desired state on a cluster of three: second plans are empty, replacements whole, and a server may die in between."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from natsctl.api import endpoints
from natsctl.api.errors import NatsctlError
from natsctl.desired.apply import changes, recovery
from natsctl.desired.apply.replacement import Replacement
from tests.support.commands import Run
from tests.support.servers import Cluster

MESSAGES = 5


@pytest.fixture
def run(command: Run, three: Cluster) -> Run:
    return command(three.url())


def written(folder: Path, **document: Any) -> str:
    path = folder / "set.json"
    path.write_text(json.dumps(document))
    return str(path)


def test_the_second_plan_is_empty_and_a_replaced_stream_is_whole(run: Run, tmp_path: Path) -> None:
    consumers = {"C": {"ack_policy": "explicit", "num_replicas": 3}}
    stream = {"subjects": ["KEPT.>"], "num_replicas": 3, "consumers": consumers}
    buckets = {"A": {"replicas": 3}, "B": {"mirror": "A"}}
    path = written(tmp_path, streams={"KEPT": stream}, key_values=buckets)
    assert run("--timeout", "5s", "apply", "-f", path).code == 0
    assert run("plan", "-f", path).code == 0
    for number in range(MESSAGES):
        assert run("pub", f"KEPT.{number}", "x", "--jetstream").code == 0
    path = written(tmp_path, streams={"KEPT": {**stream, "storage": "memory"}}, key_values=buckets)
    done = run("--timeout", "5s", "apply", "-f", path, "--allow-replace", "--keep-messages", "--yes")
    assert done.code == 0, done.err
    info = run("str", "info", "KEPT", "-j").json
    assert (info["state"]["messages"], info["config"]["storage"]) == (MESSAGES, "memory")
    assert len(info["cluster"]["replicas"]) == 2
    assert run("con", "info", "KEPT", "C", "-j").json["config"]["num_replicas"] == 3
    assert run("plan", "-f", path).code == 0
    assert not any(name.startswith("natsctl-replaced") for name in run("str", "ls", "-n").out.split())


def test_a_replacement_that_was_cut_off_and_then_loses_its_only_copy_is_finished(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies when it begins to restore, and the next one's server before the replicas have the stream.

    nats-server 2.15 holds the name of a restore that was begun on a cluster for ever.
    """
    stream = {"subjects": ["CUT.>"], "num_replicas": 3}
    assert run("--timeout", "5s", "apply", "-f", written(tmp_path, streams={"CUT": stream})).code == 0
    for number in range(MESSAGES):
        assert run("pub", f"CUT.{number}", "x", "--jetstream").code == 0
    path = written(tmp_path, streams={"CUT": {**stream, "storage": "memory"}})
    words = ("--timeout", "5s", "apply", "-f", path, "--allow-replace", "--keep-messages", "--yes")

    async def cut_off(retrying: Any, sending: Any) -> None:
        body = {"config": sending._config, "state": sending.backup.state}
        await retrying.manager.requests.ask(endpoints.STREAM_RESTORE, "CUT", body=body)
        raise NatsctlError("cut off")

    async def nothing(*arguments: Any) -> None:
        """Leave all as it is, as a process does that is killed."""

    with monkeypatch.context() as patched:
        patched.setattr(recovery, "restore_sent", cut_off)
        patched.setattr(Replacement, "_take_back", nothing)
        assert run(*words).code == 1
    assert run("pub", "CUT.0", "lost", "--jetstream").code == 5, "nobody gets an ack meanwhile"
    copied, asked = recovery._is_copied, list[str]()

    async def late(retrying: Any, config: Any) -> bool:
        asked.append(config["name"])
        return len(asked) > 1 and await copied(retrying, config)

    monkeypatch.setattr(recovery, "_is_copied", late)
    done = run(*words)
    assert (done.code, asked) == (0, ["CUT", "CUT"]), done.err
    info = run("str", "info", "CUT", "-j").json
    assert (info["state"]["messages"], info["config"]["storage"], info["config"]["subjects"]) == (
        MESSAGES,
        "memory",
        ["CUT.>"],
    )
    assert len(info["cluster"]["replicas"]) == 2
    assert not any(name.startswith("natsctl-replaced") for name in run("str", "ls", "-n", "-a").out.split())


def test_a_server_that_dies_during_an_apply_does_not_keep_it_from_its_end(
    run: Run, command: Run, three: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = {f"S{number}": {"subjects": [f"s{number}"], "num_replicas": 3} for number in range(4)}
    path = written(tmp_path, streams=streams)
    take, taken = changes.Steps.take, threading.Event()

    async def dying(self: changes.Steps, change: Any) -> Any:
        if not taken.is_set():
            taken.set()
            three.servers[0].kill()
        return await take(self, change)

    monkeypatch.setattr(changes.Steps, "take", dying)
    try:
        done = run("--timeout", "5s", "apply", "-f", path)
        assert done.code == 0, done.err
        assert run("--timeout", "5s", "plan", "-f", path).code == 0
    finally:
        three.servers[0].start()
    again = command(three.servers[0].url)
    assert any(again("--timeout", "5s", "str", "info", "S3", "-j").code == 0 for _ in range(20)), "it is back"
