"""The source travels by value: to processes that have pyspark and pyarrow and nothing of natsctl."""

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


def run(folder: Path, given: Any, *stages: str) -> Any:
    """What the last of some stages returns, each in a process without natsctl, as Spark starts them.

    Results in between stay pickled: classes that come back by value would replace the methods of this process's own.
    """
    (folder / "0").write_bytes(CloudPickleSerializer().dumps(given))
    for number, stage in enumerate(stages):
        command = [sys.executable, "-P", str(BARE), stage, str(folder / f"{number}"), str(folder / f"{number + 1}")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROCESS_TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr
    return CloudPickleSerializer().loads((folder / f"{len(stages)}").read_bytes())


def test_streams_are_read_without_natsctl(api: JetStreamApi, tmp_path: Path) -> None:
    make(api, number=10, allow_direct=True)
    url = api.link.settings.urls[0]
    told = [{"servers": url, "stream": "ORDERS", "transport": each} for each in ("consumer", "direct", "get")]
    tables = run(tmp_path, (DefaultSource, told), "create", "plan", "read")
    assert len(tables) == 3
    for rows in tables:
        assert [row["seq"] for row in rows] == list(range(1, 11))
        assert (rows[0]["subject"], rows[0]["value"]) == ("ORDERS.0", b"x")


def test_a_backup_needs_natsctl_where_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "backup.json").write_text("{}")
    with pytest.raises(AssertionError, match="a backup is read by natsctl: install it on every machine"):
        run(tmp_path, (DefaultSource, [{"backup": str(tmp_path / "backup")}]), "create", "plan")


def test_streams_are_written_without_natsctl(api: JetStreamApi, tmp_path: Path) -> None:
    make(api, number=0)
    told = {"servers": api.link.settings.urls[0], "stream": "ORDERS"}
    assert run(tmp_path, (DefaultSource, [told]), "create", "write") == "written"
    assert api.stream_info("ORDERS")["state"]["messages"] == 3
