"""`audit gather`, `query`, `analyze` and `checks`, and `--archive`: a bundle answers as its server did."""

import errno
import json
import os
import re
import stat
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from natsctl.client.audit.analysis import all_checks
from natsctl.client.audit.bundle import METADATA, BundleWriter, write_bundle
from natsctl.testing.process import ServerProcess
from tests.cli.conftest import groups_of
from tests.support.commands import Run


@pytest.fixture
def bundle(system: Run, user: Run, tmp_path: Path) -> str:
    user("str", "add", "KEPT", "--subjects", "kept.x", "--defaults")
    user("con", "add", "KEPT", "C1", "--pull", "--defaults")
    path = str(tmp_path / "audit.zip")
    done = system("audit", "gather", "-o", path, "--no-server-profiles", "--no-progress", "-j")
    assert done.code == 0, done.err
    counted = done.json
    assert (counted["servers"], counted["streams"], counted["profiles"]) == (1, 1, 0)
    assert counted["documents"] > 12
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    return path


def test_a_bundle_answers_every_command_that_takes_one(bundle: str, offline: Run) -> None:
    for line, text in (row.split("  →  ") for row in groups_of("server/archived.txt")["commands"]):
        done = offline(*line.split(), "--archive", bundle)
        assert done.code == 0, (line, done.err)
        assert text.replace(" ", "") in (done.out + done.err).replace(" ", ""), (line, done.out)


def test_a_bundle_and_its_server_give_the_same_documents(bundle: str, system: Run) -> None:
    for kind in ("variables", "routes", "gateways", "leafnodes", "accounts"):
        (live,) = system("server", "request", kind).lines
        (kept,) = system("server", "request", kind, "--archive", bundle).lines
        assert set(live["data"]) == set(kept["data"]), kind
    (live,) = system("server", "list", "-j").json
    (kept,) = system("server", "list", "-j", "--archive", bundle).json
    assert live["server"]["id"] == kept["server"]["id"]
    assert {"cpu", "mem", "connections", "sent", "received", "jetstream"} <= set(kept["statsz"])
    (live,) = system("server", "stream-check", "--stream", "KEPT", "-j").json
    (kept,) = system("server", "stream-check", "--stream", "KEPT", "-j", "--archive", bundle).json
    assert live == kept


def test_a_bundle_says_what_it_cannot_answer(bundle: str, offline: Run) -> None:
    for line, code, text in (
        ("server report jetstream --account NOPE", 3, "has no account NOPE"),
        ("server report health --account A", 2, "cannot be chosen by account"),
        ("server report cpu --watch 1s", 2, "exclude each other"),
        ("server report connections --state closed", 2, "cannot be chosen by state"),
        ("server request connections --filter-account NOPE", 3, "has no account NOPE"),
        ("server info other", 3, "no server is named other"),
        ("server account info NOPE", 3, "NOPE"),
        ("server list 2", 5, "1 of 2 servers answered"),
        ("server stream-check --health", 2, "--health asks the servers"),
        ("server request profile heap /nowhere", 1, "the bundle has no profile heap; it has: none"),
    ):
        done = offline(*line.split(), "--archive", bundle)
        assert (done.code, text in done.err) == (code, True), (line, done.err)


def test_documents_of_a_bundle_are_found_by_their_tags(bundle: str, offline: Run) -> None:
    (found,) = offline("audit", "query", bundle, "--stream", "KEPT", "-j").json
    assert found["tags"] == {
        "artifact_type": "stream_info", "cluster": "unclustered", "server": "one", "account": "A", "stream": "KEPT",
    }  # fmt: skip
    (document,) = offline("audit", "query", bundle, "--type", "stream_info", "--account", "A", "--show").lines
    assert document["config"]["name"] == "KEPT"
    assert "stream_info" in offline("audit", "query", bundle, "--cluster", "unclustered", "--host", "one").out
    raw = offline("audit", "query", bundle, "--type", "variables", "--raw").out
    assert json.loads(raw)["server"]["name"] == "one"
    missing = offline("audit", "query", bundle, "--type", "nothing")
    assert (missing.code, "its types are: account" in missing.err) == (3, True)


def test_profiles_are_gathered_and_written_from_a_bundle(system: Run, operated: ServerProcess, tmp_path: Path) -> None:
    path = tmp_path / "audit.zip"
    words = ["--no-account-endpoints", "--no-streams", "--no-details", "--cpu-profile-duration", "10ms"]
    done = system("audit", "cap", "-o", str(path), *words, "-j")
    assert done.code == 0, done.err
    if operated.kind == "natsctl":  # it has none, which leaves gaps
        assert (done.json["profiles"], len(done.json["faults"])) == (0, 8)
        return
    assert (done.json["profiles"], done.json["faults"]) == (8, [])
    with zipfile.ZipFile(path) as archive:
        assert "capture/profiles/unclustered/one__goroutine_2.prof" in archive.namelist()
    words = ["goroutine", str(tmp_path / "p"), "--level", "2", "--archive", str(path)]
    (written,) = system("server", "request", "profile", *words, "-j").json
    assert b"goroutine" in Path(written["file"]).read_bytes()
    other = system("server", "request", "profile", "heap", str(tmp_path / "p"), "--level", "5", "--archive", str(path))
    assert other.code == 1
    assert "the bundle has no profile heap_5; it has: allocs, block, cpu, goroutine_1" in other.err


@pytest.mark.reference("nats")
def test_bundles_and_reports_are_those_of_the_nats_tool(
    bundle: str, system: Run, operated: ServerProcess, tmp_path: Path
) -> None:
    def nats(*words: str) -> str:
        done = subprocess.run(["nats", *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def outcomes(text: str) -> list[str]:
        return re.findall(r"^\[\w+\] \[\w+\] .*|^ - .*", text, re.M)

    theirs = str(tmp_path / "theirs.zip")
    login = ("-s", operated.url.replace("nats://", "nats://s:p@"))
    # The tool refuses streams outside a cluster: their cluster has no name there.
    nats(*login, "audit", "gather", "-o", theirs, "--no-server-profiles", "--no-streams", "--timeout", "3s")
    for path in (bundle, theirs):
        assert outcomes(nats("audit", "analyze", path)) == outcomes(system("audit", "analyze", path).out)
    listed = [set(zipfile.ZipFile(path).namelist()) for path in (bundle, theirs)]
    assert listed[1] <= listed[0]  # the tool leaves out what takes longer than its timeout
    saved, again = str(tmp_path / "ours.json"), str(tmp_path / "theirs.json")
    system("audit", "analyze", bundle, "--save", saved)
    nats("audit", "analyze", bundle, "--save", again)
    assert outcomes(nats("audit", "analyze", "--load", saved)) == outcomes(nats("audit", "analyze", "--load", again))
    loaded = system("audit", "analyze", "--load", again, "-j").json
    assert loaded["outcomes"] == json.loads(Path(saved).read_text())["outcomes"]
    assert system("audit", "checks", "-j").json == json.loads(nats("audit", "checks", "--json"))
    assert "KEPT" in nats("server", "stream-check", "--archive", bundle)


def test_a_gather_leaves_other_files_alone(system: Run, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("kept")
    done = system("audit", "gather", "-o", str(other))
    assert (done.code, "is no bundle" in done.err) == (2, True)
    dry = system("audit", "gather", "-o", str(tmp_path / "new.zip"), "--dry-run", "-j")
    assert (dry.code, dry.json["dry_run"]) == (0, True)
    long = system("audit", "gather", "-o", str(tmp_path / "new.zip"), "--cpu-profile-duration", "16s")
    assert (long.code, "at most 15s" in long.err) == (2, True)
    nobody = system("audit", "gather", "-o", str(tmp_path / "new.zip"), "--cluster", "ELSEWHERE")
    assert nobody.code == 3
    assert sorted(one.name for one in tmp_path.iterdir() if one.is_file()) == ["notes.txt"]
    assert other.read_text() == "kept"


def test_a_full_disk_ends_a_gather_with_its_reason(
    system: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: BundleWriter, path: str, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(BundleWriter, "_write", full)
    done = system("audit", "gather", "-o", str(tmp_path / "new.zip"), "--no-server-profiles", "--no-progress")
    assert (done.code, list(tmp_path.glob("*.zip*"))) == (2, [])
    assert "No space left on device" in done.err and "Traceback" not in done.err


def test_markdown_of_a_report_moves_no_cursor(offline: Run, tmp_path: Path) -> None:
    path = tmp_path / "audit.zip"
    with write_bundle(path) as writer:
        server = {"name": "one", "id": "A"}
        data = {"server": server, "data": {"now": "2026-11-24T00:00:00Z", "version": "2.15.2\x1b[2J", "cores": 1}}
        writer.add(data, artifact_type="variables", cluster="C", server="one")
        data = {"server": server, "data": {"now": "2026-11-24T00:00:00Z", "version": "1", "cores": 1}}
        writer.add(data, artifact_type="variables", cluster="C", server="two")
    done = offline("audit", "analyze", str(path), "--markdown")
    assert done.code == 0 and "2.15.2" in done.out
    assert "\x1b" not in done.out and done.out.count("\n") > 20


def test_a_file_that_is_no_bundle_is_refused(offline: Run, tmp_path: Path) -> None:
    plain, empty, damaged, lacking = (tmp_path / name for name in ("plain", "empty", "damaged", "lacking"))
    plain.write_text("text")
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("other.txt", "x")
    with zipfile.ZipFile(damaged, "w") as archive:
        archive.writestr("capture/misc/manifest.json", '{"a": [{"Label": "x"}]}')
    with zipfile.ZipFile(lacking, "w") as archive:
        archive.writestr("capture/misc/manifest.json", '{"gone.json": []}')
    for path, text in (
        (plain, "not a zip file"),
        (empty, "has no capture/misc/manifest.json"),
        (damaged, "its manifest is damaged"),
        (lacking, "gone.json is in its manifest and not in the file"),
        (tmp_path / "absent", "No such file"),
    ):
        for words in (("audit", "analyze", str(path)), ("server", "list", "--archive", str(path))):
            done = offline(*words)
            assert (done.code, done.out, text in done.err) == (2, "", True), (words, done.err)


def test_pages_of_a_bundle_are_put_together(offline: Run, tmp_path: Path) -> None:
    """Two pages of connections and two servers of one name, as large deployments have them."""
    path = tmp_path / "paged.zip"
    with write_bundle(path) as writer:
        for at, server in enumerate(("ID1", "ID2")):
            info = {"name": "one", "id": server, "cluster": "C"}
            tags = {"cluster": "C", "server": "one"}
            writer.add({"server": info, "data": {"mem": at}}, artifact_type="variables", **tags)
            said = {"server": info, "data": {"account_name": "A", "name_tag": "SHOP"}}
            writer.add(said, artifact_type="account_info", account="A", **tags)
            for page in range(2):
                same = {"name_tag": "SHOP", "subscriptions": 1, **({"subscriptions_list": ["o.*"]} if at else {})}
                cids = [{"cid": 10 * at + 2 * page + one, "in_msgs": one, **same} for one in range(2)]
                document = {"server": info, "data": {"connections": cids, "total": 2, "limit": 2}}
                writer.add(document, artifact_type="account_connections", account="A", **tags)
    asked = ("server", "request", "connections", "--archive", str(path))
    first, second = offline(*asked).lines
    assert [one["cid"] for one in first["data"]["connections"]] == [0, 1, 2, 3]
    assert [one["cid"] for one in second["data"]["connections"]] == [10, 11, 12, 13]
    assert second["data"]["num_connections"] == 4
    assert {one["account"] for one in first["data"]["connections"]} == {"A"}
    first, _ = offline(*asked, "--limit", "1", "--offset", "1", "--sort", "msgs_from").lines
    assert [one["cid"] for one in first["data"]["connections"]] == [3]
    for name in ("A", "SHOP"):  # operators give accounts names besides their ids
        first, _ = offline(*asked, "--filter-account", name).lines
        assert len(first["data"]["connections"]) == 4
        shown = offline("server", "account", "info", name, "--archive", str(path), "--host", "ID2", "-j").json
        assert shown["name_tag"] == "SHOP"
    refused = offline(*asked, "--filter-subject", "o.x")
    assert (refused.code, "were not gathered (--no-details)" in refused.err) == (2, True)
    for subject, number in (("o.x", 4), ("p.x", 0)):
        (only,) = offline(*asked, "--filter-subject", subject, "--host", "ID2").lines
        assert len(only["data"]["connections"]) == number
    assert offline("server", "request", "routes", "--archive", str(path)).code == 3


def test_a_damaged_document_is_reported(bundle: str, offline: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "damaged.zip")
    with zipfile.ZipFile(bundle) as whole, zipfile.ZipFile(path, "w") as damaged:
        for name in whole.namelist():
            content = whole.read(name)
            if "jetstream_info" in name:
                document = json.loads(content)
                document["data"].update(account_details=[{"stream_detail": [None]}], config=1)
                content = json.dumps(document).encode()
            elif "/gateways/" in name:
                content = b"[" + content
            damaged.writestr(name, content)
    for line in ("report jetstream --leaders", "stream-check", "request gateways", "report downgrade 1"):
        done = offline("server", *line.split(), "--archive", path)
        assert done.code == 2, (line, done.err)
        assert path in done.err
    report = offline("audit", "analyze", path, "-j")
    assert report.code == 0
    errors = {one["check"]["code"]: one["examples"].get("error", "") for one in report.json["checks"]}
    assert "gateways" in errors["CLUSTER_002"]
    assert "is damaged" in errors["SERVER_005"]


def test_bundles_of_earlier_releases_are_read(offline: Run, tmp_path: Path) -> None:
    """Until nats 0.2 a document was one file, not a folder of pages, and had nothing but the data of the answer."""
    path, manifest = tmp_path / "old.zip", {}
    varz = {"server_id": "N1", "server_name": "n1", "version": "2.10.0", "cpu": 5, "jetstream": {"config": {"x": 1}}}
    documents = {"variables": varz, "health": {"status": "ok"}, "routes": {"server_id": "N1", "routes": [{"rid": 7}]}}
    with zipfile.ZipFile(path, "w") as archive:
        for kind, document in documents.items():
            name, tags = f"capture/clusters/C/n1/{kind}.json", {"artifact_type": kind, "cluster": "C", "server": "n1"}
            archive.writestr(name, json.dumps(document))
            manifest[name] = [{"Name": label, "Value": value} for label, value in tags.items()]
        archive.writestr("capture/misc/manifest.json", json.dumps(manifest))
        archive.writestr("capture/misc/more.log", "")
    (found,) = offline("server", "list", "-j", "--archive", str(path)).json
    assert found["server"] == {"name": "n1", "id": "N1", "cluster": "C", "ver": "2.10.0", "jetstream": True}
    assert found["statsz"]["cpu"] == 5
    (row,) = offline("server", "report", "routes", "-j", "--archive", str(path)).json
    assert row["rid"] == 7
    assert offline("server", "report", "health", "--archive", str(path)).code == 0
    done = offline("audit", "analyze", str(path), "--verbose")
    assert "[PASS] [SERVER_002]" in done.out
    assert "capture/misc/more.log is not in the manifest" in done.err


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
