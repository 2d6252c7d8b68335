"""Where all processes have natsctl, Spark is given the data source's name in place of its code."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from natsctl.spark import SOURCE_BY_NAME
from natsctl.spark.session import connect as room
from natsctl.spark.session.connect import source_code

_PICKLED = """
import sys
from pyspark.serializers import CloudPickleSerializer
from natsctl.spark.registered import DefaultSource
sys.stdout.buffer.write(CloudPickleSerializer().dumps(DefaultSource))
"""


def pickled(environment: dict[str, str]) -> bytes:
    """The data source as a process with that environment gives it to Spark."""
    command = [sys.executable, "-c", _PICKLED]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, timeout=100).stdout


@pytest.mark.spark
def test_the_source_goes_by_name_only_where_the_environment_says_so() -> None:
    environment = {name: value for name, value in os.environ.items() if name != SOURCE_BY_NAME}
    by_name = pickled({**environment, SOURCE_BY_NAME: "1"})
    assert len(by_name) < 1000
    assert pickle.loads(by_name).name() == "jetstream"
    assert len(pickled(environment)) > 100_000


def test_any_change_of_any_file_is_another_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source" / "reading").mkdir(parents=True)
    files = [tmp_path / "source" / "a.py", tmp_path / "source" / "reading" / "b.py"]
    files += [tmp_path / "s2.py", tmp_path / "frames.py"]
    for file in files:
        file.write_text("first")
    monkeypatch.setattr(room, "_FOLDER", tmp_path / "source")
    monkeypatch.setattr(room, "_FILES", files[-2:])
    seen = {source_code()}
    for file in files:
        file.write_text("other")
        seen.add(source_code())
    files[1].rename(tmp_path / "source" / "reading" / "c.py")
    seen.add(source_code())
    assert len(seen) == 6
    assert source_code() in seen
