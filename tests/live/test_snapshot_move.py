"""Streams move between natsctl's server and the reference, in both directions, through real connections."""

from pathlib import Path
from typing import Any

import pytest

from natsctl.client.backup.restore import restore_stream
from natsctl.client.backup.save import SaveOptions, save_stream
from natsctl.client.backup.transfer import RetryingManager
from natsctl.client.manager import Manager
from natsctl.client.messaging import messages
from natsctl.client.messaging.consumers import pull
from natsctl.testing.process import Kind, ServerProcess
from tests.support.servers import managing

STREAM = {"name": "S", "subjects": ["s.*"], "storage": "file", "metadata": {"kept": "<yes>"}}
COUNTS = ("delivered", "ack_floor", "num_ack_pending", "num_redelivered", "num_pending")


async def fill(manager: Manager) -> None:
    """Make a stream with gaps, a missing newest message, headers, and a consumer in the middle of its work."""
    await manager.stream_create(STREAM)
    for number in range(40):
        await messages.publish(manager, f"s.{number % 3}", b"%d" % number * 50, headers={"N": str(number)})
    for seq in (1, 2, 17, 40):
        await manager.message_delete("S", seq)
    await manager.consumer_create("S", {"durable_name": "C", "ack_policy": "explicit"})
    async for message in pull(manager, "S", "C", {"batch": 5, "expires": 1_000_000_000}):
        if b"5" in message.body:
            continue
        await messages.acknowledge(manager, message)


async def seen(manager: Manager) -> tuple[Any, ...]:
    """Return everything that must be the same after a move, apart from defaults that versions differ in."""
    info = (await manager.stream_info("S")).raw
    consumer = (await manager.consumer_info("S", "C")).raw
    counts = {key: consumer[key] for key in COUNTS}
    for key in ("delivered", "ack_floor"):
        counts[key] = (counts[key]["consumer_seq"], counts[key]["stream_seq"])
    stored = []
    for seq in (3, 16, 18, 39):
        found = (await manager.message_get("S", seq=seq)).value.message
        stored.append((found.seq, found.subject, found.hdrs, found.data, found.time))
    config = {key: info["config"][key] for key in ("name", "subjects", "retention", "max_msgs", "duplicate_window")}
    return info["created"], info["state"], config, info["config"]["metadata"]["kept"], counts, stored


@pytest.mark.reference
@pytest.mark.parametrize(
    ("kinds", "version"),
    [(("natsctl", "reference"), "1"), (("natsctl", "reference"), "2"), (("reference", "natsctl"), "2")],
    ids=["natsctl-to-reference-1", "natsctl-to-reference-2", "reference-to-natsctl"],
)
async def test_a_stream_moves_between_servers(tmp_path: Path, kinds: tuple[Kind, Kind], version: str) -> None:
    held: list[tuple[Any, ...]] = []
    for kind in kinds:
        flags = ("--archive_version", version) if kind == "natsctl" else ()
        with ServerProcess(tmp_path / kind, kind, *flags) as server:
            async with managing(server.url) as manager:
                if held:
                    await restore_stream(RetryingManager(manager), tmp_path / "s.tgz")
                else:
                    await fill(manager)
                    await save_stream(RetryingManager(manager), "S", tmp_path / "s.tgz", SaveOptions(force=True))
                held.append(await seen(manager))
    (created, state, *before), (created_after, state_after, *after) = held
    assert after == before
    if version == "1":
        assert created_after == created, "version 1 keeps the time of creation"
    elif kinds[1] == "reference":
        # nats-server takes this time from the last message that is there.
        state["last_ts"] = state_after["last_ts"] = ""
    assert state_after == state
