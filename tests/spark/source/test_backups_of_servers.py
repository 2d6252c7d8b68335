"""Backups that servers made, as tables: the rows are what the server holds."""

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from natsctl.spark.source.jetstream_api import JetStreamApi
from tests.spark.source.backups import rows
from tests.spark.source.streams import delete, until
from tests.spark.source.test_data_source import table

NUMBER = 350
TOKENS = ("a", "b-c", "\N{SNOWMAN}", "x" * 60, "$y", "7")


def fill(api: JetStreamApi, name: str, **config: Any) -> None:
    """A stream of random messages, of which some are deleted, some purged and some dropped by a limit."""
    chance = random.Random(name)
    limits = {"max_msgs": NUMBER - 50, "max_msgs_per_subject": 200}
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


@pytest.mark.both
@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_backup_has_the_rows_that_the_server_holds(api: JetStreamApi, storage: str, tmp_path: Path) -> None:
    fill(api, "ODD", storage=storage)
    held = table(api, stream="ODD", transport="get")
    assert len(held) == api.stream_info("ODD")["state"]["messages"]
    for target in ("b", "b.tgz"):
        backup(api, tmp_path / target, sys.executable, "-m", "natsctl")
        for number in ("1", "4"):
            assert rows(tmp_path / target, minPartitions=number) == held


def backup(api: JetStreamApi, path: Path, *command: str) -> None:
    words = ["-s", api.link.settings.urls[0], "stream", "backup", "ODD", str(path), "--no-progress"]
    subprocess.run([*command, *words], check=True, capture_output=True, timeout=60)


@pytest.mark.reference("nats")
def test_a_backup_of_the_nats_tool_has_them_too(api: JetStreamApi, tmp_path: Path) -> None:
    fill(api, "ODD", storage="file")
    backup(api, tmp_path / "b", "nats")
    assert rows(tmp_path / "b") == table(api, stream="ODD", transport="get")
