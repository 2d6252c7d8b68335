"""Servers for the tests of users: as documents say, alone, and gone afterwards."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.testing.jetstream import JetStreamServer, jetstream_fixture
from tests.support import patient_client

ROOT = Path(__file__).parents[2]
ORDERS = ROOT / "examples" / "configs" / "orders.yaml"

shared = jetstream_fixture("examples/configs/orders.yaml", scope="module")
staged = jetstream_fixture("examples/documents/shop/*.yaml", variables={"STAGE": "test"}, name="by_name")
empty = jetstream_fixture()


async def consumers(url: str) -> dict[str, list[str]]:
    client = await patient_client.connect(url)
    js = client.jetstream()
    names = [str(one.config.name) for one in await js.streams_info()]
    found = {name: sorted(info.name for info in await js.consumers_info(name)) for name in names}
    await client.close()
    return found


WORLD = {"ORDERS": ["DISPATCH", "MONITOR", "NEW"]}


async def test_a_fixture_has_what_its_documents_say(shared: JetStreamServer) -> None:
    assert await consumers(shared.url) == WORLD


async def test_reset_goes_back_to_the_documents_inside_a_running_loop(shared: JetStreamServer) -> None:
    client = await patient_client.connect(shared.url)
    js = client.jetstream()
    await js.publish("ORDERS.received", b"1")
    await js.delete_consumer("ORDERS", "NEW")
    await js.add_stream(name="OTHER", subjects=["other"])
    await js.create_key_value(bucket="CFG")
    shared.reset()
    assert await consumers(shared.url) == WORLD
    assert (await js.stream_info("ORDERS")).state.last_seq == 0
    await client.close()


async def test_variables_and_names_are_those_of_the_call(by_name: JetStreamServer) -> None:
    assert sorted(await consumers(by_name.url)) == ["SALES_test", "STOCK_test"]


async def test_without_documents_it_is_empty_and_servers_are_apart(
    empty: JetStreamServer, shared: JetStreamServer
) -> None:
    assert await consumers(empty.url) == {}
    assert empty.port != shared.port


async def test_a_folder_of_ones_own_is_kept(tmp_path: Path) -> None:
    for documents in ((ORDERS,), ()):
        with JetStreamServer(*documents, store_dir=tmp_path) as server:
            assert await consumers(server.url) == WORLD


def test_nothing_is_left_running_or_lying_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temp = tmp_path / "temp"
    temp.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temp))
    before, interval = set(threading.enumerate()), sys.getswitchinterval()
    with JetStreamServer(ORDERS) as server:
        assert list(temp.iterdir())
        assert not set(threading.enumerate()) <= before
    assert list(temp.iterdir()) == []
    assert set(threading.enumerate()) <= before
    assert sys.getswitchinterval() == interval
    server.stop()
    for use in (server.reset, lambda: server.url):
        with pytest.raises(RuntimeError, match="not running"):
            use()


def test_what_can_not_be_made_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    (tmp_path / "temp").mkdir()
    bad, clash = tmp_path / "bad.yaml", tmp_path / "clash.yaml"
    bad.write_text("streams: {A: {subjects: [a], max_age: soon}}")
    clash.write_text("streams: {A: {subjects: [a.>]}, B: {mirror: {name: NOWHERE}, consumers: {C: {ack_wait: -1s}}}}")
    with pytest.raises(UsageError, match=r"\$\.streams\.A\.max_age"):
        JetStreamServer(bad)
    before = set(threading.enumerate())
    with pytest.raises(NatsctlError), JetStreamServer(clash):
        pass
    assert set(threading.enumerate()) <= before
    assert list((tmp_path / "temp").iterdir()) == []


@pytest.mark.docs
def test_the_examples_run() -> None:
    environment = {**os.environ, "PYTEST_ADDOPTS": ""}
    words = ["-q", "-o", "addopts=", "-p", "no:cacheprovider", "examples/pytest"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
