"""`natsctl rtt` and `natsctl latency` as a script runs them."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natsctl.testing.process import ServerProcess

Run = Callable[..., Any]


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


def test_a_login_in_the_url_is_not_shown(natsctl: Run, shared_server: ServerProcess) -> None:
    done = natsctl("rtt", "1", "-s", shared_server.url.replace("://", "://me:secret@"), "-j")
    assert done.code == 0, done.err
    assert "secret" not in done.out


def test_latency_is_measured_at_the_rate_that_was_asked_for(natsctl: Run, shared_server: ServerProcess) -> None:
    done = natsctl("latency", "--server-b", shared_server.url, "--rate", "500", "--duration", "200ms", "-j")
    assert done.code == 0, done.err
    report = done.json
    assert (report["sent"], report["received"]) == (100, 100)
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
