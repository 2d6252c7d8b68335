import asyncio
from pathlib import Path
from unittest.mock import patch

from msgspec.structs import replace
from nats.js.api import ConsumerConfig
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from natsctl.server.instance import ServerInstance
from natsctl.server.monitor import metrics
from natsctl.server.monitor.metrics import family, labels
from natsctl.server.options import ServerOptions
from tests.support import patient_client

from .test_endpoints import OPTIONS, ask


def parsed(text: str) -> dict[str, Metric]:
    """Return the families of a page by name; each is told once, and no sample twice."""
    heads = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len(heads) == len(set(heads))
    current = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            current = line.split()[2]
        elif not line.startswith("# "):
            assert line.split("{")[0].split(" ")[0] == current
    found = list(text_string_to_metric_families(text))
    samples = [(sample.name, tuple(sorted(sample.labels.items()))) for one in found for sample in one.samples]
    assert len(samples) == len(set(samples))
    assert all(one.documentation and one.type in ("counter", "gauge") for one in found)
    return {one.name: one for one in found}


async def page(server: ServerInstance) -> dict[str, Metric]:
    ((status, body),) = await asyncio.to_thread(ask, server.port_of("monitoring"), ("GET", "/metrics"))
    assert status == 200
    return parsed(body.decode())


def options(folder: Path) -> ServerOptions:
    return replace(OPTIONS, jetstream=True, store_dir=folder, server_name="hub")


async def test_server_accounts_streams_consumers_and_process_are_told(tmp_path: Path) -> None:
    async with ServerInstance(options(tmp_path)) as server:
        client = await patient_client.connect(server.url)
        js = client.jetstream()
        await js.add_stream(name="ORDERS", subjects=["orders.*"])
        await js.add_consumer("ORDERS", ConsumerConfig(durable_name="billing"))
        for number in range(3):
            await js.publish(f"orders.{number}", b"x")
        told = await page(server)
        await client.close()
    stream = told["jetstream_stream_total_messages"].samples[0]
    assert (stream.value, stream.labels["stream_name"], stream.labels["account"]) == (3, "ORDERS", "$G")
    assert told["jetstream_stream_subject_count"].samples[0].value == 3
    pending = told["jetstream_consumer_num_pending"].samples[0]
    assert (pending.value, pending.labels["consumer_name"], pending.labels["server_name"]) == (3, "billing", "hub")
    assert told["gnatsd_varz_connections"].samples[0].value == 1
    assert told["gnatsd_varz_in_msgs"].type == "counter"
    accounts = {one.labels["account"]: one.value for one in told["gnatsd_accstatz_current_connections"].samples}
    assert accounts["$G"] == 1
    assert told["gnatsd_healthz_status"].samples[0].value == 0
    assert told["natsctl_commits"].samples[0].value > 0
    assert told["process_resident_memory_bytes"].samples[0].value > 1 << 20


async def test_without_jetstream_the_page_says_so(tmp_path: Path) -> None:
    async with ServerInstance(OPTIONS) as server:
        told = await page(server)
    assert told["jetstream_server_jetstream_disabled"].samples[0].value == 1
    assert "jetstream_stream_total_messages" not in told


async def test_what_is_beyond_the_limits_is_counted_and_not_told(tmp_path: Path) -> None:
    async with ServerInstance(options(tmp_path)) as server:
        client = await patient_client.connect(server.url)
        js = client.jetstream()
        for number in range(4):
            await js.add_stream(name=f"S{number}", subjects=[f"s{number}"])
            await js.add_consumer(f"S{number}", ConsumerConfig(durable_name="D"))
        with patch.object(metrics, "MAX_STREAMS", 3), patch.object(metrics, "MAX_CONSUMERS", 2):
            told = await page(server)
        await client.close()
    assert len(told["jetstream_stream_last_seq"].samples) == 3
    assert len(told["jetstream_consumer_num_waiting"].samples) == 2
    left = {one.labels["kind"]: one.value for one in told["natsctl_metrics_left_out"].samples}
    assert left == {"account": 0, "stream": 1, "consumer": 2}


def test_labels_and_help_are_escaped_and_empty_labels_left_out() -> None:
    value = 'a"b\\c\nd é \ud800'
    text = family("x", "gauge", "one\\two\nthree", [(labels({"name": value, "none": ""}), 1.5)]).decode()
    (found,) = text_string_to_metric_families(text)
    assert found.documentation == "one\\two\nthree"
    assert found.samples[0].labels == {"name": 'a"b\\c\nd é ?'}
    assert found.samples[0].value == 1.5
