"""`natsctl bench`, `rtt` and `latency` as a script runs them, with few messages."""

import os
import re
import signal
import socket
from pathlib import Path

import pytest

from natsctl.client.bench.benchmark import Workers
from natsctl.client.bench.load import Load
from natsctl.client.dial import connect
from natsctl.client.servers import resolve
from natsctl.client.settings import Settings
from natsctl.testing.process import ServerProcess
from tests.cli.conftest import eventually
from tests.support.commands import Run

ALIKE = pytest.mark.ours("what a benchmark counts and shows is the same on any server")

WITHIN_S = 30


@pytest.fixture
def stored(natsctl: Run) -> Run:
    assert natsctl("str", "add", "L", "--subjects", "load.*", "--allow-direct").code == 0
    assert natsctl("pub", "load.a", "12345", "--count", "59", "-q").code == 0
    assert natsctl("pub", "load.a", "12345", "-J").code == 0
    return natsctl


@pytest.mark.parametrize("way", ["sync", "async", "atomic", "fast"])
def test_what_is_published_is_stored_and_counted(natsctl: Run, way: str) -> None:
    words = ("--create", "--stream", "B", "--msgs", "50", "--size", "16", "--storage", "memory")
    more = () if way == "sync" else ("--batch", "20")
    done = natsctl("bench", "js", "pub", way, "b.x", *words, *more, "-j")
    assert done.code == 0, done.err
    assert done.err == ""
    total = done.json["total"]
    assert (total["msgs"], total["bytes"]) == (50, 800)
    assert total["msgs_per_s"] == pytest.approx(50 * 1e9 / total["duration_ns"], rel=0.01)
    info = natsctl("str", "info", "B", "-j").json
    assert info["state"]["messages"] == 50
    assert info["config"]["storage"] == "memory"


@pytest.mark.parametrize(
    "words",
    [
        ("ordered",), ("consume", "--batch", "7"), ("consume", "--acks", "all", "--batch", "8", "--doubleack"),
        ("fetch", "--batch", "25", "--doubleack"), ("fetch", "--acks", "none", "--filter", "load.a"),
        ("get", "sync"), ("get", "batch", "--batch", "25"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_way_to_read_gets_all_messages_and_leaves_no_consumer(stored: Run, words: tuple[str, ...]) -> None:
    done = stored("bench", "js", *words, "--stream", "L", "--msgs", "60", "-j")
    assert done.code == 0, done.err
    assert (done.json["total"]["msgs"], done.json["total"]["bytes"], done.json["size"]) == (60, 300, 5)
    assert stored("con", "ls", "L", "-n").out == ""


@ALIKE
@pytest.mark.parametrize(
    "words",
    [
        ("ordered", "load", "--multisubject"),
        ("push", "load.a", "--maxacks", "10", "--no-ack"),
        ("pull", "load.a", "--batch", "25", "--doubleack", "--sleep", "1us"),
    ],
    ids=" ".join,
)
def test_the_older_words_read_the_messages_of_a_subject(stored: Run, words: tuple[str, ...]) -> None:
    done = stored("bench", "oldjs", *words, "--stream", "L", "--msgs", "60", "-j")
    assert done.code == 0, done.err
    assert done.json["total"]["msgs"] == 60
    assert stored("con", "ls", "L", "-n").out == ""


@ALIKE
def test_clients_share_the_messages_and_a_table_shows_each(natsctl: Run, tmp_path: Path) -> None:
    lines = tmp_path / "run.csv"
    done = natsctl("bench", "pub", "b.x", "--msgs", "11", "--clients", "2", "--csv", str(lines))
    assert done.code == 0, done.err
    assert "Clients: 2 in 2 processes" in done.out or os.cpu_count() == 1
    rows = [line.split("│") for line in done.out.splitlines() if line.startswith("│")]
    assert [row[2].strip() for row in rows] == ["Messages", "6", "5"]
    written = [line.split(",") for line in lines.read_text().splitlines()]
    assert written[0][:3] == ["#RunID", "ClientID", "MsgCount"]
    assert [row[1:4] for row in written[1:]] == [["P0", "6", "768"], ["P1", "5", "640"]]


@ALIKE
def test_payload_headers_ids_and_subjects_reach_the_stream(natsctl: Run, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(b"the payload")
    words = ("--payload", str(body), "-H", "Kind:load", "--dedup", "--multisubject", "--multisubjectmax", "2")
    assert natsctl("bench", "js", "pub", "async", "b", "--create", "--stream", "B", "--msgs", "3", *words).code == 0
    stored = [natsctl("str", "get", "B", str(seq), "-j").json for seq in (1, 2, 3)]
    assert [one["subject"] for one in stored] == ["b.0", "b.1", "b.0"]
    shown = natsctl("str", "get", "B", "1")
    assert "the payload" in shown.out
    assert "Kind: load" in shown.out + shown.err
    assert "Nats-Msg-Id" in shown.out + shown.err


@ALIKE
def test_a_rate_is_kept_for_as_long_as_was_asked(natsctl: Run) -> None:
    done = natsctl("bench", "pub", "b.x", "--throughput", "1000", "--duration", "200ms", "-j")
    assert done.json["total"]["msgs"] == 200
    assert done.json["total"]["duration_ns"] > 190_000_000


def test_buckets_are_made_filled_and_read(natsctl: Run) -> None:
    put = ("bench", "kv", "put", "--msgs", "30", "--size", "10", "-j")
    missing = natsctl(*put, "--bucket", "BB")
    assert (missing.code, "natsctl kv add BB" in missing.error["hint"]) == (3, True)
    assert natsctl(*put).json["stream"] == "KV_benchbucket"
    natsctl("kv", "add", "BB")
    assert natsctl(*put, "--bucket", "BB").json["stream"] == "KV_BB"
    got = natsctl("bench", "kv", "get", "--msgs", "30", "--bucket", "BB", "-j")
    assert got.json["total"]["bytes"] == 300
    absent = natsctl("bench", "kv", "get", "--msgs", "40", "--bucket", "BB", "-j")
    assert (absent.code, absent.out) == (7, "")
    assert "kv put" in absent.error["hint"]


@ALIKE
def test_subscribers_each_receive_everything(natsctl: Run, begun: Run) -> None:
    listener = begun("bench", "sub", "b.sub", "--msgs", "40", "--clients", "2", "-j")
    eventually(lambda: natsctl("pub", "b.sub", "x", "-q", "--count", "40"), lambda _: listener.poll() is not None)
    out, err = listener.communicate()
    assert listener.returncode == 0, err
    assert out.count('"msgs": 40') == 2
    assert '"msgs": 80' in out


@ALIKE
def test_a_service_answers_the_requests_of_another_benchmark(natsctl: Run, begun: Run) -> None:
    service = begun("bench", "service", "serve", "b.ask", "--msgs", "30", "--clients", "2", "-j")
    first = eventually(lambda: natsctl("req", "b.ask", "first", "-j"), lambda done: done.code != 5)
    assert first.code == 0, first.err
    done = natsctl("bench", "service", "request", "b.ask", "--msgs", "29", "-j")
    assert done.code == 0, done.err
    assert done.json["total"]["latency"]["min_ns"] > 0
    out, err = service.communicate(timeout=WITHIN_S)
    assert service.returncode == 0, err
    assert '"msgs": 30' in out


@ALIKE
async def test_answers_before_the_start_are_counted(shared_server: ServerProcess) -> None:
    target = resolve(Settings(url=shared_server.url), {"HOME": "/nowhere"})
    workers = Workers(target, Load(kind="service serve", subject="b.early", msgs=3), 1)
    try:
        await workers.prepare()
        async with await connect(target, name="early") as connection:
            for _ in range(3):
                await connection.request("b.early", b"")
        assert [done.msgs for done in await workers.run()] == [3]
    finally:
        await workers.close()
    assert workers.msgs == 3


@ALIKE
def test_nobody_who_answers_is_told_at_once(natsctl: Run) -> None:
    done = natsctl("bench", "service", "request", "b.nobody", "--msgs", "5", "-j")
    assert (done.code, done.out) == (5, "")
    assert "service serve" in done.error["hint"]


@ALIKE
@pytest.mark.parametrize("words", [("consume",), ("get", "sync"), ("get", "batch")], ids=" ".join)
def test_messages_that_are_not_there_end_the_wait(stored: Run, words: tuple[str, ...]) -> None:
    done = stored("bench", "js", *words, "--stream", "L", "--msgs", "61", "--wait", "1s", "-j")
    assert (done.code, done.out) == (7, "")
    assert "60" in done.error["description"]
    assert stored("con", "ls", "L", "-n").out == ""


@ALIKE
def test_a_consumer_that_was_there_stays(stored: Run) -> None:
    assert stored("con", "add", "L", "MINE", "--pull", "--ack", "explicit").code == 0
    assert stored("bench", "js", "consume", "--stream", "L", "--consumer", "MINE", "--msgs", "60").code == 0
    assert stored("con", "ls", "L", "-n").out == "MINE\n"


@ALIKE
def test_a_stream_that_no_benchmark_made_is_left_as_it_is(stored: Run) -> None:
    before = stored("str", "info", "L", "-j").json["config"]
    done = stored("bench", "js", "pub", "sync", "load.b", "--create", "--stream", "L", "--msgs", "5", "-j")
    assert (done.code, done.out) == (2, "")
    assert stored("str", "info", "L", "-j").json["config"] == before
    assert stored("bench", "js", "pub", "sync", "load.b", "--stream", "L", "--msgs", "5").code == 0


def test_a_stream_of_benchmarks_is_changed_by_the_next_and_purged(natsctl: Run) -> None:
    assert natsctl("bench", "js", "pub", "async", "b.x", "--create", "--msgs", "5").code == 0
    done = natsctl("bench", "js", "pub", "async", "b.y", "--create", "--msgs", "5", "--purge")
    assert done.code == 0, done.err
    assert "purged 5 messages of Stream benchstream" in done.err
    info = natsctl("str", "info", "benchstream", "-j").json
    assert (info["config"]["subjects"], info["state"]["messages"]) == (["b.y"], 5)


@ALIKE
def test_a_dry_run_shows_the_stream_and_changes_nothing(natsctl: Run) -> None:
    done = natsctl("bench", "js", "pub", "fast", "b.x", "--create", "--stream", "B", "--msgs", "7", "-j", "--dry-run")
    assert done.code == 0
    (request,) = done.json["requests"]
    assert request["subject"] == "$JS.API.STREAM.CREATE.B"
    assert request["body"]["subjects"] == ["b.x"]
    assert done.json["effect"]["messages"] == 7
    assert natsctl("str", "ls", "-n", "-a").out == ""
    assert natsctl("bench", "pub", "b.x", "--dry-run", "-j").json["effect"]["messages"] == 100_000


@ALIKE
def test_ctrl_c_leaves_no_consumer_and_no_process(stored: Run, begun: Run) -> None:
    words = ("--stream", "L", "--msgs", "1000", "--wait", "60s", "--clients", "2")
    process = begun("bench", "js", "consume", *words)
    assert "created Consumer natsctl-bench" in process.stderr.readline()
    eventually(lambda: stored("con", "info", "L", "natsctl-bench", "-j").json["num_pending"] == 0)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert children
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WITHIN_S)
    assert process.returncode == 130
    assert stored("con", "ls", "L", "-n").out == ""
    assert not [child for child in children if Path(f"/proc/{child}/cmdline").exists()]


def test_round_trips_are_told_for_every_address(natsctl: Run, shared_server: ServerProcess) -> None:
    (server,) = natsctl("rtt", "3", "-j").json
    assert server["url"] == shared_server.url
    (trip,) = server["results"]
    assert (trip["address"], trip["iterations"]) == (shared_server.url, 3)
    assert 0 < trip["min"] <= trip["rtt"] <= trip["max"]
    assert shared_server.url in natsctl("rtt").out


def test_a_server_that_is_not_there_is_told_beside_those_that_are(natsctl: Run, shared_server: ServerProcess) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        absent = f"nats://127.0.0.1:{taken.getsockname()[1]}"
        done = natsctl("rtt", "1", "-s", f"{shared_server.url},{absent}", "-j")
        lines = natsctl("rtt", "1", "-s", f"{shared_server.url},{absent}")
        assert natsctl("rtt", "1", "-s", absent).code == 5
    assert done.code == lines.code == 0
    assert re.search(rf"^{shared_server.url}: \d.*\n{absent}: failed\n$", lines.out), lines.out
    assert absent in lines.err
    here, there = done.json
    assert here["results"][0]["rtt"] > 0
    assert "nothing listens" in there["results"][0]["error"]
    assert "rtt" not in there["results"][0]


def test_latency_is_measured_at_the_rate_that_was_asked_for(natsctl: Run, shared_server: ServerProcess) -> None:
    both = f"nats://127.0.0.1:1,{shared_server.url}"
    flags = ("-s", both, "--server-b", both, "--rate", "500", "--duration", "200ms", "-j")
    done = natsctl("latency", *flags)
    assert done.code == 0, done.err
    report = done.json
    assert (report["sent"], report["received"]) == (100, 100)
    assert report["server_a"] == report["server_b"] == shared_server.url
    assert report["server_a_name"] == report["server_b_name"] != ""
    assert report["msgs_per_s"] <= 520
    assert report["latency"]["min_ns"] <= report["latency"]["p50_ns"] <= report["latency"]["max_ns"]
    assert sum(one["count"] for one in report["histogram"]) == 100
    assert [one["percent"] for one in report["percentiles"]][-1] == 100.0


def test_latency_shows_percentiles_and_bars_and_writes_a_file(
    natsctl: Run, shared_server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    file = tmp_path / "latency.hdr"
    words = ("--duration", "100ms", "--rate", "300", "--size", "64", "--histogram", str(file))
    done = natsctl("lat", "--server-b", shared_server.url, *words)
    assert done.code == 0, done.err
    assert "99.9%:" in done.out
    assert "█" in done.out
    assert max(len(line) for line in done.out.splitlines()) <= 60
    titles, blank, *rows = file.read_text().splitlines()
    assert (titles.split(), blank) == (["Value", "Percentile", "TotalCount", "1/(1-Percentile)"], "")
    values = [float(row.split()[0]) for row in rows]
    assert values == sorted(values)


def test_messages_that_do_not_get_there_are_told(natsctl: Run, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "other") as other:
        done = natsctl("latency", "--server-b", other.url, "--duration", "100ms", "--timeout", "1s", "-j")
    assert (done.code, done.out) == (5, "")
    assert "be connected" in done.error["hint"]
