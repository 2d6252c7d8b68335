"""The one test of the default tier that starts Spark: a query over a stream, asked by a command of its own."""

import json
import subprocess
import sys

import pytest

from natsctl.testing.jetstream import JetStreamServer

JOB_TIMEOUT_S = 280
QUERY = """
select subject, count(*) n, sum(get_json_object(cast(value as string), '$.total')) total, max(headers[0].key) `key`
from ORDERS where seq > 1 group by subject order by subject
"""


@pytest.mark.cpu(60)
@pytest.mark.timeout(300)
def test_a_query_that_needs_spark_is_answered_by_a_command() -> None:
    with JetStreamServer() as server:

        def natsctl(*words: str) -> str:
            command = [sys.executable, "-m", "natsctl", "-s", server.url, *words]
            done = subprocess.run(command, capture_output=True, text=True, timeout=JOB_TIMEOUT_S)
            assert done.returncode == 0, done.stderr
            return done.stdout

        natsctl("stream", "add", "ORDERS", "--subjects", "ORDERS.>", "--defaults")
        body = '{"total": {{Count}}}'
        natsctl("pub", "ORDERS.eu", body, "--templates", "--count", "3", "-H", "Color:red", "--wait")
        natsctl("pub", "ORDERS.us", body, "--templates", "--count", "2", "--wait")
        assert json.loads(natsctl("sql", QUERY, "-j")) == [
            {"subject": "ORDERS.eu", "n": 2, "total": 5.0, "key": "Color"},
            {"subject": "ORDERS.us", "n": 2, "total": 3.0, "key": None},
        ]
