"""The source travels by value: to processes that have pyspark and pyarrow and nothing of natsctl."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark_jetstream import DefaultSource

from natsctl.spark.source.jetstream_api import JetStreamApi
from tests.spark.source.streams import make

BARE = Path(__file__).with_name("bare_process.py")
PROCESS_TIMEOUT_S = 100
pytestmark = pytest.mark.spark


class Cluster:
    """Processes without natsctl, one after another, as Spark starts them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps = 0

    def run(self, stage: str, given: Path) -> Path:
        """Where the result of a stage is, pickled."""
        self.steps += 1
        result = self.folder / f"{self.steps}-{stage}"
        command = [sys.executable, "-P", str(BARE), stage, str(given), str(result)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROCESS_TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr
        return result

    def sources(self, *told: dict[str, str]) -> Path:
        """Sources as a process without natsctl made them of the class that Spark was given."""
        first = self.folder / "class"
        first.write_bytes(CloudPickleSerializer().dumps((DefaultSource, told)))
        return self.run("create", first)


def result(path: Path) -> Any:
    return CloudPickleSerializer().loads(path.read_bytes())


def test_streams_and_backups_are_read_without_natsctl(api: JetStreamApi, tmp_path: Path) -> None:
    make(api, number=10, allow_direct=True)
    url, backup = api.link.settings.urls[0], tmp_path / "backup"
    command = [sys.executable, "-m", "natsctl", "-s", url, "stream", "backup", "ORDERS", str(backup)]
    subprocess.run(command, check=True, capture_output=True, timeout=PROCESS_TIMEOUT_S)
    told = [{"servers": url, "stream": "ORDERS", "transport": each} for each in ("consumer", "direct", "get")]
    cluster = Cluster(tmp_path)
    tables = result(cluster.run("read", cluster.run("plan", cluster.sources(*told, {"backup": str(backup)}))))
    assert len(tables) == 4
    for rows in tables:
        assert [row["seq"] for row in rows] == list(range(1, 11))
        assert (rows[0]["subject"], rows[0]["value"]) == ("ORDERS.0", b"x")


def test_streams_are_written_without_natsctl(api: JetStreamApi, tmp_path: Path) -> None:
    make(api, number=0)
    cluster = Cluster(tmp_path)
    told = {"servers": api.link.settings.urls[0], "stream": "ORDERS"}
    assert result(cluster.run("write", cluster.sources(told))) == "written"
    assert api.stream_info("ORDERS")["state"]["messages"] == 3
