"""`audit analyze` and `audit checks`: each check finds its fault in documents that have it, and nothing in others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from natsctl.client.audit.analysis import all_checks
from natsctl.client.audit.bundle import METADATA, write_bundle

Run = Callable[..., Any]
Document = dict[str, Any]
NOW = "2026-11-24T00:00:00Z"
WELL: Mapping[str, Document] = {
    "variables": {"version": "2.15.2", "cores": 2, "cpu": 10, "mem": 100, "auth_required": True, "now": NOW},
    "health": {"status": "ok", "status_code": 200},
    "gateways": {"outbound_gateways": {"B": {"configured": True}}, "inbound_gateways": {}},
    "leafs": {"leafs": [{"name": "hub"}]},
    "jetstream_info": {"ha_assets": 1, "config": {"max_memory": 100}, "memory": 1, "meta_cluster": {"leader": "n1"}},
}
STREAM: Document = {
    "name": "S",
    "config": {"max_msgs": 100, "metadata": {}},
    "state": {"messages": 1, "last_seq": 100, "num_subjects": 1},
    "cluster": {"name": "C", "leader": "n1"},
}
MONITORED = {"io.nats.monitor.enabled": "true"}
FAULTY: dict[str, tuple[str, str, str, Document]] = {
    "ACCOUNTS_001": ("WARN", "account_info", "account A (on n2) using 95.0% of client connections limit (95/100)",
                     {"account_name": "A", "client_connections": 95,
                      "decoded_jwt": {"nats": {"limits": {"conn": 100, "subs": -1}}}}),
    "CLUSTER_001": ("WARN", "variables", "Cluster C avg: 550 B, server n2: 1000 B", {"mem": 1000}),
    "CLUSTER_002": ("FAIL", "gateways", "Cluster C, outbound gateways server n2: [] != server n1: [B]",
                    {"outbound_gateways": {"B": {"configured": False}}}),
    "CLUSTER_003": ("WARN", "jetstream_info", "n2: 1001 HA assets", {"ha_assets": 1001}),
    "LEAF_001": ("FAIL", "leafs", "Cluster C: [a b]", {"leafs": [{"name": "a b"}]}),
    "META_001": ("FAIL", "jetstream_info", "C - n2 reports peer n3 as offline",
                 {"meta_cluster": {"leader": "n1", "replicas": [{"name": "n3", "offline": True}]}}),
    "META_002": ("FAIL", "jetstream_info", "Members of C disagree on meta leader (n1: [n1]; n2: [n2])",
                 {"meta_cluster": {"leader": "n2"}}),
    "SERVER_001": ("WARN", "health", "n2: 503 - unavailable", {"status": "unavailable", "status_code": 503}),
    "SERVER_002": ("FAIL", "variables", "n2 - 2.10.0", {"version": "2.10.0"}),
    "SERVER_003": ("FAIL", "variables", "C - n2: 95.0%", {"cpu": 190}),
    "SERVER_004": ("WARN", "variables", "C/n2: 3 slow consumers", {"slow_consumers": 3}),
    "SERVER_005": ("WARN", "jetstream_info", "n2 memory usage: 91 B of 100 B", {"memory": 91}),
    "SERVER_006": ("WARN", "jetstream_info", "Cluster C Server n2 Domain a b", {"config": {"domain": "a b"}}),
    "SERVER_007": ("WARN", "variables", "n2: authentication not required", {"auth_required": False}),
    "SERVER_008": ("WARN", "variables", "C/n2 leafnode TLS certificate expires in 240h0m0s "
                   "(expires_at=2026-12-04T00:00:00Z)", {"leaf": {"tls_cert_not_after": "2026-12-04T00:00:00Z"}}),
    "JETSTREAM_001": ("FAIL", "stream_info", "A/S server n2 lastSequence: 80 is behind highest lastSequence: 100 "
                      "on server: n1", {"state": {"last_seq": 80}}),
    "JETSTREAM_002": ("WARN", "stream_info", "A/S: 1000001 subjects",
                      {"state": {"last_seq": 100, "num_subjects": 1000001}}),
    "JETSTREAM_003": ("WARN", "stream_info", "stream S (in A on n2) using 91.0% of messages limit (91/100)",
                      {"state": {"last_seq": 100, "messages": 91}}),
    "JETSTREAM_004": ("FAIL", "stream_info", "CRITICAL: stream S in A: 1 messages",
                      {"cluster": {"name": "C", "leader": "n2"},
                       "config": {"metadata": {**MONITORED, "io.nats.monitor.msgs-critical": "5"}}}),
    "JETSTREAM_005": ("FAIL", "stream_info", "CRITICAL: consumer W in stream S in A: last acknowledgement 60.00s ago",
                      {"consumer_detail": [{"name": "W", "ack_floor": {"last_active": "2026-11-23T23:59:00Z"},
                       "config": {"metadata": {**MONITORED, "io.nats.monitor.last-ack-critical": "30s"}}}]}),
}  # fmt: skip
"""Outcome of each check where server n2 has what is given last in a document of the type, and what is reported."""


def _bundle(path: Path, kind: str = "", fault: Mapping[str, Any] = {}, cluster: str = "C") -> str:
    """Write a bundle of two servers; the second has a fault in its documents of one type."""
    with write_bundle(path) as writer:
        writer.add({"capture_timestamp": NOW, "connect_url": "nats://x", "user_name": "me"}, special=METADATA)
        for name in ("n1", "n2"):
            info = {"name": name, "id": name.upper(), "cluster": cluster}
            tags = {"cluster": cluster, "server": name}
            for one, data in {**WELL, "account_info": {"account_name": "A"}}.items():
                account = {"account": "A"} if one == "account_info" else {}
                changed = {**data, **(fault if one == kind and name == "n2" else {})}
                writer.add({"server": info, "data": changed}, artifact_type=one, **tags, **account)
            stream = {**STREAM, **(fault if kind == "stream_info" and name == "n2" else {})}
            writer.add(stream, artifact_type="stream_info", account="A", stream="S", **tags)
    return str(path)


def test_every_check_has_a_case_here() -> None:
    assert {one.check.code for one in all_checks()} == {*FAULTY, "CLUSTER_004"}


def test_a_bundle_without_faults_passes_every_check(offline: Run, tmp_path: Path) -> None:
    report = offline("audit", "analyze", _bundle(tmp_path / "well.zip"), "-j").json
    assert report["outcomes"] == {"PASS": 20, "WARN": 0, "FAIL": 0, "SKIP": 1}  # without certificates
    assert all(one["examples"] == {} for one in report["checks"])


@pytest.mark.parametrize("code", FAULTY)
def test_a_fault_is_found_by_its_check(offline: Run, tmp_path: Path, code: str) -> None:
    outcome, kind, text, fault = FAULTY[code]
    path = _bundle(tmp_path / "ill.zip", kind, fault)
    report = offline("audit", "analyze", path, "-j").json
    found = {one["check"]["code"]: one for one in report["checks"]}[code]
    assert found["outcome_string"] == outcome
    assert text in found["examples"]["examples"]
    skipped = offline("audit", "analyze", path, "--skip", code.lower(), "-j").json
    assert skipped["outcomes"]["SKIP"] >= 1
    assert {one["check"]["code"]: one for one in skipped["checks"]}[code]["outcome_string"] == "SKIP"


def test_whitespace_in_the_name_of_a_cluster_is_found(offline: Run, tmp_path: Path) -> None:
    done = offline("audit", "analyze", _bundle(tmp_path / "ill.zip", cluster="a b"))
    assert "[FAIL] [CLUSTER_004] No cluster name contains whitespace\n - Cluster: a b\n" in done.out


def test_exceeded_limits_and_expired_certificates_fail(offline: Run, tmp_path: Path) -> None:
    claims = {"client_connections": 101, "name_tag": "SHOP", "decoded_jwt": {"nats": {"limits": {"conn": 100}}}}
    done = offline("audit", "analyze", _bundle(tmp_path / "a.zip", "account_info", claims))
    assert "[FAIL] [ACCOUNTS_001]" in done.out
    assert " - account SHOP (A) (on n2) exceeded client connections limit (101.0%, 101/100)" in done.out
    expired = {"tls_cert_not_after": "2026-11-23T00:00:00Z"}
    done = offline("audit", "analyze", _bundle(tmp_path / "b.zip", "variables", expired))
    assert "[FAIL] [SERVER_008]" in done.out
    assert "C/n2 server TLS certificate expired" in done.out


def test_documents_that_lack_leave_a_check_out(offline: Run, tmp_path: Path) -> None:
    path = tmp_path / "bare.zip"
    with write_bundle(path) as writer:
        tags = {"cluster": "C", "server": "n1"}
        writer.add({"server": {"name": "n1", "id": "N1"}, "data": None}, artifact_type="health", **tags)
    done = offline("audit", "analyze", str(path), "--verbose")
    assert done.code == 0
    assert "Error: there are no variables of server n1 in cluster C" in done.out
    assert "SERVER_001: the health of server n1 in cluster C are empty" in done.err


def test_thresholds_can_be_given(offline: Run, tmp_path: Path) -> None:
    path = _bundle(tmp_path / "well.zip")
    done = offline("audit", "analyze", path, "--threshold", "SERVER_003.cpu=4%", "--fail-on", "fail", "-j")
    found = {one["check"]["code"]: one for one in done.json["checks"]}["SERVER_003"]
    assert (done.code, found["outcome_string"]) == (1, "FAIL")
    assert found["check"]["configuration"]["cpu"]["set_value"] == 4
    for wrong, text in (
        ("SERVER_003.cpu=101", "from 0 to 100"),
        ("SERVER_003.cpu=x", "expected a number"),
        ("CLUSTER_003.assets=1.5", "whole number"),
        ("CLUSTER_003.assets=-1", "not negative"),
        ("SERVER_003.other=1", "no check has"),
        ("cpu", "CODE.KEY=VALUE"),
    ):
        done = offline("audit", "analyze", path, "--threshold", wrong)
        assert (done.code, done.out, text in done.err) == (2, "", True), done.err


def test_examples_are_limited(offline: Run, tmp_path: Path) -> None:
    leafs = {"meta_cluster": {"leader": "n1", "replicas": [{"name": f"p{at}", "offline": True} for at in range(7)]}}
    path = _bundle(tmp_path / "ill.zip", "jetstream_info", leafs)
    assert " - ... and 2 more ...\n" in offline("audit", "analyze", path).out
    assert "p6" in offline("audit", "analyze", path, "--max-examples", "0").out
    pages = offline("audit", "analyze", path, "--markdown", "--max-examples", "1").out
    assert "#### Meta cluster offline replicas\n\nOutcome: **FAIL**\n\n|#|Example|\n|-|-------|\n|1|C - n2" in pages
    assert "|FAIL|1|" in pages
    assert "|2|" not in pages


def test_reports_are_saved_and_shown_again(offline: Run, tmp_path: Path) -> None:
    path, saved = _bundle(tmp_path / "ill.zip", "health", {"status": "down"}), tmp_path / "report.json"
    shown = offline("audit", "analyze", path, "--save", str(saved)).out
    again = offline("audit", "analyze", "--load", str(saved))
    assert again.out.replace(str(saved), path) == shown
    before = saved.read_bytes()
    refused = offline("audit", "analyze", path, "--save", str(saved))
    assert (refused.code, refused.out, saved.read_bytes()) == (2, "", before)
    assert offline("audit", "analyze", path, "--save", str(saved), "-f", "--fail-on", "warn").code == 1
    for content in ("{}", "x", '{"type": 1', '{"type": "io.nats.audit.v1.analysis", "checks": 1}', "[]"):
        saved.write_text(content)
        bad = offline("audit", "analyze", "--load", str(saved))
        assert (bad.code, bad.out) == (2, "")
    assert offline("audit", "analyze").code == 2
    assert offline("audit", "analyze", path, "--skip", "SERVER_99").code == 2
    assert offline("audit", "analyze", path, "--fail-on", "often").code == 2


def test_the_checks_are_listed_with_their_thresholds(offline: Run) -> None:
    rows = offline("audit", "ls", "-j").json
    assert [one["code"] for one in rows] == sorted(
        (one["code"] for one in rows), key=lambda code: (code.split("_")[0].lower(), code)
    )
    assert "tls_expire_critical (7), tls_expire_warning (30)" in offline("audit", "checks").out
    assert json.dumps(rows).count('"set_value"') == 0
