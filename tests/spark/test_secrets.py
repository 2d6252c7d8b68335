"""TLS and credentials on executors, and that no secret is in anything that Spark keeps or shows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from natsctl.spark.session.installation import installed_spark, quick_home
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.link import Link
from natsctl.testing.certificates import Authority
from natsctl.testing.process import ServerProcess
from tests.spark.source.streams import make
from tests.support.operators import Operator

JOB_TIMEOUT_S = 280
PASSWORD = "correct-horse-battery-staple"


@pytest.mark.spark
def test_executors_connect_with_tls_and_credentials_and_no_secret_is_kept_or_shown(tmp_path: Path) -> None:
    files, out = tmp_path / "files", tmp_path / "out"
    home = quick_home(installed_spark(), out / "spark")  # executors work in a folder there
    for folder in (files, out / "events"):
        folder.mkdir(parents=True)
    authority = Authority(tmp_path / "authority")
    pair = authority.issue("server", dns=["localhost"], addresses=["127.0.0.1"])
    client = authority.issue("client", emails=["derek@nats.io"])
    operator = Operator()
    account = operator.account("A", limits={"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1})
    user = operator.user(account)
    for name, content in (
        ("ca.pem", authority.cert.read_text()),
        ("client.pem", client.cert.read_text()),
        ("client.key", client.key.read_text()),
        ("user.creds", user.creds),
        ("password", PASSWORD),
    ):
        (files / name).write_text(content)
    tls = f'tls {{ cert_file: "{pair.cert}", key_file: "{pair.key}", ca_file: "{authority.cert}", verify: true }}'
    conf = tmp_path / "nats.conf"
    conf.write_text(operator.conf(tls))
    with ServerProcess(tmp_path / "server", "natsctl", "-c", str(conf)) as server:
        url = server.url.replace("nats://", "tls://")
        settings = ServerSettings(
            urls=(url,),
            jwt=user.jwt,
            seed=user.key.seed.decode(),
            tls_ca=authority.cert.read_text(),
            tls_cert=client.cert.read_text(),
            tls_key=client.key.read_text(),
        )
        with Link.open(settings) as link:
            api = JetStreamApi(link, settings)
            make(api, number=12)
            make(api, "COPY", number=0)
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.spark_secrets_job", "--server", url, "--files", files, "--out", out],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(home.folder)},
            capture_output=True,
            timeout=JOB_TIMEOUT_S,
            check=False,
        )
        with Link.open(settings) as link:
            copies = JetStreamApi(link, settings).stream_info("COPY")["state"]["messages"]
    output = done.stdout + done.stderr
    assert done.returncode == 0, output.decode()[-4000:]
    assert done.stdout.count(b"rows 12") == 2
    assert copies == 24
    assert b"refused" in done.stdout
    kept = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} | {Path("output"): output}
    assert any("events" in path.parts and b"SparkListenerSQLExecutionStart" in text for path, text in kept.items())
    assert any("pages" in path.parts and b"jetstream" in text for path, text in kept.items())
    assert any("checkpoint1" in path.parts for path in kept)
    assert any("work" in path.parts and path.name == "stderr" for path in kept)
    key_line = client.key.read_text().splitlines()[1]
    for secret in (user.key.seed.decode(), user.jwt, key_line, PASSWORD):
        assert [str(path) for path, text in kept.items() if secret.encode() in text] == [], secret[:12]
