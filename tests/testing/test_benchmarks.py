"""The commands that measure: their options, how targets are judged, the mixed load. Nothing here is timed."""

from __future__ import annotations

import asyncio

import pytest

from bench import archives, loop, mixed, scale, servers
from bench.measure import Target, api, fill, report
from natsctl.testing.jetstream import JetStreamServer
from tests.support.raw_client import RawClient

SYNC = servers.Load("raw-js-sync", 100, 1.3, beside=servers.ALWAYS, cpu_us=2.2, above_disk_us=100)
DISK_US = 150.0


def figures(per_s: float, server_us: float = 1.0, p50_us: float = 0.0) -> servers.Figures:
    """Return the figures of one run."""
    return servers.Figures(per_s, server_us, 0.5, p50_us, p50_us)


def test_the_quick_form_runs_raw_modes_in_fewer_rounds() -> None:
    quick, whole = servers.parsed(["--quick"]), servers.parsed([])
    assert quick.rounds < whole.rounds
    assert {load.mode for load in quick.modes} < {load.mode for load in whole.modes}
    assert all(load.mode.startswith("raw-") for load in quick.modes)


def test_modes_are_chosen_by_name_or_by_kind(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = servers.parsed(["--modes", "js-fetch,raw"]).modes
    assert [load.mode for load in chosen if not load.mode.startswith("raw-")] == ["js-fetch"]
    with pytest.raises(SystemExit):
        servers.parsed(["--modes", "js-fetsh"])
    assert "no such mode: js-fetsh" in capsys.readouterr().err


def test_a_rate_a_cost_and_a_latency_are_judged() -> None:
    found = {servers.NATIVE: figures(1300, 2.2, 250), servers.ALWAYS: figures(1000)}
    assert [line.rpartition(" ")[2] for line in servers.judged(SYNC, found, DISK_US)] == ["met)"] * 3
    found[servers.NATIVE] = figures(1299, 2.21, 251)
    assert [line.rpartition(" ")[2] for line in servers.judged(SYNC, found, DISK_US)] == ["MISSED)"] * 3


def test_without_a_server_to_compare_with_only_its_own_figures_are_judged() -> None:
    lines = servers.judged(SYNC, {servers.NATIVE: figures(1300, 0.0, 250)}, DISK_US)
    assert len(lines) == 1 and lines[0].startswith("p50: 250 µs (target 250")
    assert servers.judged(SYNC, {servers.PLAIN: figures(1300)}, DISK_US) == []


def test_the_median_of_each_figure_counts() -> None:
    runs = [figures(1, 30, 200), figures(2, 10, 300), figures(3, 20, 100)]
    assert servers.medians(runs) == figures(2, 20, 200)


def test_waits_are_judged_by_the_longest_and_by_the_percentile() -> None:
    assert loop.Waits(0.020, 0.005, 9.0).met
    assert not loop.Waits(0.021, 0.005, 9.0).met
    assert not loop.Waits(0.020, 0.006, 9.0).met
    assert loop.parsed(["--only", "mixed"]).names == [loop.MIXED]


@pytest.mark.parametrize(
    ("name", "own", "reference", "end"),
    [
        ("publish_per_s", 80.0, 100.0, "target 0.8: met"),
        ("publish_per_s", 79.0, 100.0, "target 0.8: MISSED"),
        ("restarted_mb", 81.0, 100.0, "target 0.8: MISSED"),
    ],
)
def test_a_ratio_is_judged_upwards_for_rates_and_downwards_for_the_rest(
    name: str, own: float, reference: float, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report("title", {"natsctl": {name: own}, "reference": {name: reference}}, {name: Target(0.8)})
    assert capsys.readouterr().out.rstrip().endswith(end)


def test_a_limit_of_time_needs_no_other_server() -> None:
    assert Target(0.002, ratio=False).judged("message for all", 0.0021, None) == "   target 2.0 ms: MISSED"
    assert Target(1.0).judged("restarted_mb", 10.0, None) == ""


def test_a_snapshot_is_judged_by_rate_and_memory(capsys: pytest.CaptureFixture[str]) -> None:
    slow, fast = archives.Moved(49, 151), archives.Moved(100, 200)
    archives.report("snapshot", {servers.NATIVE: slow, servers.PLAIN: slow, servers.LAZY: fast})
    native, *others = capsys.readouterr().out.splitlines()
    assert native.count("MISSED") == 2 and "/ nats-server 0.49" in native
    assert not any("target" in line for line in others)
    archives.report("snapshot", {servers.NATIVE: archives.Moved(50, 150), servers.LAZY: fast})
    assert capsys.readouterr().out.splitlines()[0].count(": met") == 2


def test_the_sizes_that_have_targets_are_run_alone() -> None:
    options = scale.parsed(["--targets"])
    sizes = {curve: getattr(options, curve) for curve in ("messages", "subjects", "streams", "consumers", "wants")}
    assert sizes == {"messages": [10_000_000], "subjects": [1_000_000], "streams": [], "consumers": [1000], "wants": []}
    assert options.restored == []


def test_the_mixed_load_does_each_kind_of_work_and_clears_up() -> None:
    async def run(url: str) -> tuple[dict[str, int], object]:
        client = await RawClient.connect(url)
        await api(client, b"STREAM.CREATE.A", {"name": "A", "subjects": ["a.>"]})
        await fill(client, 100, lambda number: b"a.%d.x" % number)
        done = await mixed.load(url, 0.0)
        left = (await api(client, b"STREAM.NAMES"))["streams"]
        await client.close()
        return done, left

    with JetStreamServer() as server:
        done, left = asyncio.run(run(server.url))
    assert set(done) == {name for name, _, _ in mixed.WORK}
    assert left == ["A"]
