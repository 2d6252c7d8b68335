"""Backups that servers made, as tables: the rows are what the server holds."""

from __future__ import annotations

import base64
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.times import parse_time
from natsctl.spark.source import backups as parts_module
from natsctl.spark.source.jetstream_api import JetStreamApi
from tests.spark.source.backups import as_row, rows
from tests.spark.source.streams import delete, until

NUMBER = 600
TOKENS = ("a", "b-c", "\N{SNOWMAN}", "x" * 60, "$y", "7")


def fill(api: JetStreamApi, name: str, **config: Any) -> None:
    """A stream of random messages, of which some are deleted, some purged and some dropped by a limit."""
    chance = random.Random(name)
    limits = {"max_msgs": NUMBER - 50, "max_msgs_per_subject": 400}
    api.ask(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **limits, **config})
    sent = []
    for at in range(NUMBER):
        subject = ".".join([name, *chance.choices(TOKENS, k=chance.choice((1, 2, 3)))]).encode()
        size = 300_000 if at in (70, 300) else chance.choice((0, 1, 100, 300))
        body = chance.randbytes(size)
        if chance.random() < 0.3:
            head = b"NATS/1.0\r\nA: %d\r\nA:\r\nLong: %s\r\n\r\n" % (at, b"v" * chance.choice((1, 500)))
            sizes = b"%d %d" % (len(head), len(head) + len(body))
            sent.append(b"HPUB %s %s\r\n%s%s\r\n" % (subject, sizes, head, body))
        else:
            sent.append(b"PUB %s %d\r\n%s\r\n" % (subject, len(body), body))
    api.link.send(b"".join(sent))
    until(lambda: bool(api.stream_info(name)["state"]["last_seq"] == NUMBER))
    held = range(api.stream_info(name)["state"]["first_seq"], NUMBER)
    delete(api, *chance.sample(held[50:], 20), NUMBER, name=name)
    api.ask(f"STREAM.PURGE.{name}", {"filter": f"{name}.7.>"})


def held_by(api: JetStreamApi, name: str) -> list[dict[str, Any]]:
    """Every message that the server has, as rows, asked for one by one."""
    found = []
    state = api.stream_info(name)["state"]
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        answer = api.link.request(f"$JS.API.STREAM.MSG.GET.{name}", b'{"seq":%d}' % seq)
        message = json_of(answer.body).get("message")
        if message:
            header, body = (base64.b64decode(message.get(key, "")) for key in ("hdrs", "data"))
            found.append(as_row((seq, parse_time(message["time"]), message["subject"].encode(), header, body), name))
    assert len(found) == state["messages"]
    return found


def json_of(body: bytes) -> dict[str, Any]:
    import json

    found: dict[str, Any] = json.loads(body)
    return found


@pytest.mark.both
@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_backup_has_the_rows_that_the_server_holds(
    api: JetStreamApi, storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "MIN_PART_BYTES", 1)
    fill(api, "ODD", storage=storage)
    url = api.link.settings.urls[0]

    for target in ("b", "b.tgz"):
        command = [sys.executable, "-m", "natsctl", "-s", url, "stream", "backup", "ODD", str(tmp_path / target)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    held = held_by(api, "ODD")

    assert rows(tmp_path / "b", minPartitions="1") == held
    assert rows(tmp_path / "b", minPartitions="4") == held
    assert rows(tmp_path / "b.tgz", minPartitions="2") == held


@pytest.mark.both
def test_a_backup_of_the_nats_tool_has_them_too(api: JetStreamApi, tmp_path: Path) -> None:
    tool = shutil.which("nats")
    if tool is None:
        pytest.skip("nats is not on PATH")
    fill(api, "ODD", storage="file")

    command = [tool, "-s", api.link.settings.urls[0], "stream", "backup", "ODD", str(tmp_path / "b"), "--no-progress"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)

    assert rows(tmp_path / "b") == held_by(api, "ODD")
