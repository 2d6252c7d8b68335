"""JetStream requests with fields that the server does not know: refused or, with `strict: false`, read without them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from natsctl.jetstream.engine_context import (
    MAX_FAULT_LENGTH,
    MAX_REQUEST_FAULTS,
    REQUEST_FAULT_NS,
    RequestFaults,
)
from natsctl.testing.clock import VirtualClock
from natsctl.testing.process import Kind
from tests.support import patient_client
from tests.support.conf_server import ConfServer

both = pytest.mark.parametrize("kind", ["natsctl", "reference"])
UNKNOWN = 'json: unknown field "what"'
OF_TYPE = (
    "json: cannot unmarshal number into Go struct field StreamConfigRequest.StreamConfig.subjects of type []string"
)


def config(folder: Path, strict: bool) -> str:
    return f"jetstream {{ store_dir: {json.dumps(str(folder))}, strict: {str(strict).lower()} }}\n"


@asynccontextmanager
async def asked(server: ConfServer) -> AsyncIterator[Client]:
    client = await patient_client.connect(server.url)
    try:
        yield client
    finally:
        await client.close()


async def answer(client: Client, verb: str, body: str) -> dict[str, Any]:
    return json.loads((await client.request(f"$JS.API.{verb}", body.encode())).data)


@both
async def test_unknown_fields_are_ignored_and_logged_once(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, config(tmp_path, False)) as server:
        async with asked(server) as client:
            body = '{"name":"A","subjects":["a"],"what":1,"other":2}'
            made = await answer(client, "STREAM.CREATE.A", body)
            assert made["config"]["subjects"] == ["a"]
            assert "error" not in await answer(client, "STREAM.CREATE.A", body)
            names = await answer(client, "STREAM.NAMES", '{"what":"B"}')
            assert names["streams"] == ["A"]
            durable = '{"stream_name":"A","config":{"durable_name":"c","what":1},"what":2}'
            assert (await answer(client, "CONSUMER.CREATE.A.c", durable))["name"] == "c"
        lines = [line for line in server.lines() if "JetStream request" in line]
        assert lines == [
            f"[WRN] Invalid JetStream request '$G > $JS.API.{verb}': {UNKNOWN}"
            for verb in ("STREAM.CREATE.A", "STREAM.NAMES", "CONSUMER.CREATE.A.c")
        ]


@pytest.mark.parametrize("kind", ["natsctl", pytest.param("reference", marks=pytest.mark.exact)])
async def test_other_faults_are_refused_all_the_same(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, config(tmp_path, False)) as server:
        async with asked(server) as client:
            for body in ('{"name":"B","what":1,"subjects":4}', '{"name":"B","subjects":4}'):
                fault = (await answer(client, "STREAM.CREATE.B", body))["error"]
                assert fault == {"code": 400, "err_code": 10025, "description": f"invalid JSON: {OF_TYPE}"}
            for body in ('{"name":"B"', '{"name":"B","what":1} {"subjects":["u"]}'):
                assert (await answer(client, "STREAM.CREATE.B", body))["error"]["err_code"] == 10025
            assert (await answer(client, "STREAM.NAMES", "{}"))["streams"] is None


@both
async def test_a_strict_server_refuses_them_and_logs_them_too(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, config(tmp_path, True)) as server:
        async with asked(server) as client:
            fault = (await answer(client, "STREAM.CREATE.A", '{"name":"A","what":1}'))["error"]
            assert fault == {"code": 400, "err_code": 10025, "description": f"invalid JSON: {UNKNOWN}"}
        assert f"[WRN] Invalid JetStream request '$G > $JS.API.STREAM.CREATE.A': {UNKNOWN}" in server.lines()


@both
def test_the_start_and_monitoring_say_so(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, config(tmp_path, False), monitoring=True) as server:
        assert not [line for line in server.lines() if "Strict:" in line]
        assert "strict" not in server.monitor("varz")["jetstream"]["config"]
        assert "strict" not in server.monitor("jsz")["config"]


def test_lines_about_requests_are_limited_in_number_and_length() -> None:
    lines: list[str] = []
    clock = VirtualClock()
    faults = RequestFaults(clock, lines.append)
    for number in range(MAX_REQUEST_FAULTS * 2):
        faults.log(f"{number} " + "x" * MAX_FAULT_LENGTH)
        faults.log(f"{number} " + "x" * MAX_FAULT_LENGTH)
    assert len(lines) == MAX_REQUEST_FAULTS
    assert {len(line) for line in lines} == {MAX_FAULT_LENGTH}
    clock.advance(REQUEST_FAULT_NS)
    faults.log("again")
    assert lines[-1] == "again"
