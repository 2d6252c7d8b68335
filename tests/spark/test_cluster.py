"""A cluster of processes on this machine: it starts, loses a worker, and leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from natsctl.spark.session.failures import SparkStartError
from tests.support.local_spark_cluster import LocalCluster


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.spark
def test_a_cluster_ends_with_all_its_processes_and_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with LocalCluster(workers=1) as cluster:
        assert cluster.url.startswith("spark://127.0.0.1:")
        pids = [daemon.process.pid for daemon in cluster._daemons]
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
        assert "Successfully registered with master" in cluster.log()
        with pytest.raises(SparkStartError, match=r"no executor runs within 0\.1 s"):
            cluster.kill_executor(within_s=0.1)
        cluster.kill_worker()
        assert [alive(pid) for pid in pids] == [True, False]
    assert not any(alive(pid) for pid in pids)
    assert list(folder.iterdir()) == []


def test_a_cluster_whose_java_is_none_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="nowhere"):
        LocalCluster(java=str(tmp_path / "nowhere"))
