"""Everything under a query is killed, and its sink has each message once.

The driver comes back with other cores, and so with other tasks; ids are made by the sink. NATSCTL_SPARK_MESSAGES scales
it, NATSCTL_SPARK_MASTER is the master of the drivers. test_standalone_cluster.py kills workers of a cluster.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from natsctl.testing.process import ServerProcess
from tests.support import spark_kills
from tests.support.spark_kills import BatchRuns, SinkChecker, copied

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = int(os.environ.get("NATSCTL_SPARK_MESSAGES", "1500"))
MASTER = os.environ.get("NATSCTL_SPARK_MASTER", "local[2]")
LONG_S = 900
"""Drivers start twice, each in a minute on a machine with much else to do."""


def judged(sent: list[tuple[bytes, bytes, bytes]], messages: int) -> SinkChecker:
    judge = SinkChecker(messages)
    for subject, msg_id, payload in sent:
        judge.take(subject, b"NATS/1.0\r\nNats-Msg-Id: " + msg_id + b"\r\n\r\n", payload)
    judge.finish()
    return judge


ALL = [copied(number) for number in range(1, 101)]


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (ALL + ALL[40:41], "duplicates"),
        (ALL[:40] + ALL[41:], "missing"),
        (ALL[:3] + ALL[19:20] + ALL[4:19] + ALL[3:4] + ALL[20:], "out_of_order"),
        ([*ALL[:-1], (*ALL[-1][:2], b"{}")], "wrong"),
        ([*ALL[:-1], (*ALL[-1][:2], ALL[-1][2].replace(b"QUICK", b"quick"))], "wrong"),
        ([*ALL[:-1], (b"out.other", *ALL[-1][1:])], "wrong"),
        ([*ALL[:-1], (ALL[-1][0], b"SPARK_IN:1", ALL[-1][2])], "wrong"),
    ],
)
def test_the_judge_finds_a_planted_fault(sent: list[tuple[bytes, bytes, bytes]], fault: str) -> None:
    judge = judged(sent, 100)
    assert judge.broken
    assert getattr(judge, fault) >= 1
    assert not judged(ALL, 100).broken
    assert not judged(sorted(ALL, key=lambda message: message[0]), 100).broken, "subjects may be in any order"


@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes to kill in /proc")
@pytest.mark.timeout(LONG_S)
def test_each_message_is_there_once_after_kills_and_with_other_cores(capsys: pytest.CaptureFixture[str]) -> None:
    kills = ["executor", "driver", "server"]
    words = ["--master", MASTER, "--kills", ",".join(kills), "--cores", "1,2", "--idempotence", "ids", "-j"]
    status = spark_kills.main(["--messages", str(MESSAGES), *words])
    told = json.loads(capsys.readouterr().out)
    assert (status, told["failure"], told["broken"]) == (0, "", False), told
    assert [kill.partition(" ")[0] for kill in told["kills"]] == kills
    assert (told["drivers"], told["found"]["stored"], told["found"]["distinct"]) == (2, MESSAGES, MESSAGES)


@pytest.mark.both
def test_a_batch_job_run_again_on_other_cores_stores_each_row_once(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    (found,) = BatchRuns(tmp_path, MESSAGES, (1, 2, 4), session=spark).stored(server.url)
    assert (found["stored"], found["distinct"], found["alike"]) == (MESSAGES, MESSAGES, MESSAGES)
    assert not found["broken"], found
