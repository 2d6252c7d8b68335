"""A pipeline over public data, killed in each part, has the rows that DuckDB computes."""

import json
import os
import sys

import pytest

from tests.support import spark_flights

FLIGHTS = os.environ.get("NATSCTL_SPARK_FLIGHTS", "6000")


@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes to kill in /proc")
@pytest.mark.skipif(not spark_flights.available(), reason=f"pip install {' '.join(spark_flights.PACKAGES)}")
@pytest.mark.timeout(900)
def test_a_pipeline_that_is_killed_in_each_part_has_the_rows_of_another_engine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kills = ["executor", "driver", "server"]
    status = spark_flights.main(["--flights", FLIGHTS, "--kills", ",".join(kills)])
    summary = json.loads(capsys.readouterr().out)
    assert (status, summary["failure"]) == (0, ""), summary
    assert [kill.partition(" ")[0] for kill in summary["kills"]] == kills
    assert summary["rows"]["copy"] == summary["departures"]
    assert set(summary["missing"].values()) == set(summary["extra"].values()) == {0}
