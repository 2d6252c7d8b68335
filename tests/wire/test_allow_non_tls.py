"""A server with `allow_non_tls` offers TLS in INFO, and each client of natsctl uses it if the user asks for it."""

import re
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from natsctl.api.errors import ExitCode
from natsctl.cli.main import run as run_main
from natsctl.client.dial import connect
from natsctl.client.one_shot import NeedsMoreError, open_one_shot, open_plain
from natsctl.client.servers import Target, resolve
from natsctl.client.settings import Settings
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.link import Link
from natsctl.testing.certificates import Authority
from natsctl.testing.process import ServerProcess

PATIENCE_S: Final = 30.0


@dataclass
class TlsServer:
    """A running server; `plain_url` and `tls_url` lead to the same port."""

    plain_url: str
    tls_url: str
    ca: Path

    def target(self, **settings: Any) -> Target:
        flags = Settings(url=self.plain_url, user="ann", password="s3cret", timeout_s=PATIENCE_S)
        return resolve(flags._replace(**settings), {"HOME": "/nowhere"})


@pytest.fixture(scope="module", params=["natsctl", "reference"])
def offering(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    """A server that takes clients with and without TLS."""
    folder = tmp_path_factory.mktemp("server")
    authority = Authority(folder)
    issued = authority.issue("server", dns=["localhost"], addresses=["127.0.0.1"])
    conf = folder / "nats.conf"
    conf.write_text(
        f'allow_non_tls: true\ntls {{ cert_file: "{issued.cert}", key_file: "{issued.key}" }}\n'
        "authorization { user: ann, password: s3cret }\n"
    )
    with ServerProcess(folder, request.param, "-c", str(conf)) as process:
        address = process.url.rpartition("/")[2]
        yield TlsServer(f"nats://{address}", f"tls://{address}", authority.cert)


@pytest.mark.parametrize("wanted", [False, True], ids=["nats", "tls"])
async def test_a_connection(offering: TlsServer, wanted: bool) -> None:
    async with await connect(offering.target(ca=str(offering.ca) if wanted else ""), name="test") as connection:
        assert connection.info["tls_available"]
        assert connection.tls is wanted
        await connection.flush()


@pytest.mark.parametrize("wanted", [False, True], ids=["nats", "tls"])
def test_completion_and_single_requests(offering: TlsServer, wanted: bool) -> None:
    known = offering.target(ca=str(offering.ca) if wanted else "")
    client = open_one_shot(known, time.monotonic() + PATIENCE_S)
    assert client is not None
    assert isinstance(client._wire._wire, ssl.SSLSocket) is wanted
    assert client.ask("STREAM.NAMES")["total"] == 0
    client.shut()
    with pytest.raises(NeedsMoreError) if wanted else nullcontext():
        open_plain(known, "test").shut()


@pytest.mark.parametrize("wanted", [False, True], ids=["nats", "tls"])
def test_spark(offering: TlsServer, wanted: bool) -> None:
    url = offering.tls_url if wanted else offering.plain_url
    settings = ServerSettings((url,), "ann", "s3cret", tls_ca=offering.ca.read_text() if wanted else "")
    with Link.open(settings) as link:
        assert isinstance(link._wire, ssl.SSLSocket) is wanted


WISHES: Final[dict[str, Callable[[TlsServer], list[str]]]] = {
    "nats": lambda server: ["--server", server.plain_url],
    "flag": lambda server: ["--server", server.plain_url, "--tlsca", str(server.ca)],
    "scheme": lambda server: ["--server", server.tls_url, "--tlsca", str(server.ca)],
    "unchecked": lambda server: ["--server", server.tls_url, "--tls-insecure"],
}


@pytest.mark.parametrize("wish", WISHES)
def test_a_command(offering: TlsServer, wish: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*WISHES[wish](offering), "--user", "ann", "--password", "s3cret"]
    assert run_main([*words, "account", "info"]) == ExitCode.DONE
    shown = re.search(r"TLS Connection: *(\w+)", capsys.readouterr().out)
    assert shown is not None
    assert shown[1] == ("no" if wish == "nats" else "yes")
    assert run_main([*words, "stream", "ls", "--names"]) == ExitCode.DONE
    assert run_main([*words, "pub", "a", "b"]) == ExitCode.DONE


def test_a_certificate_that_nobody_vouches_for_is_refused(offering: TlsServer) -> None:
    words = ["--server", offering.tls_url, "--user", "ann", "--password", "s3cret", "stream", "ls"]
    assert run_main(words) == ExitCode.UNREACHABLE


@pytest.mark.reference("nats")
def test_nats_upgrades_too(offering: TlsServer) -> None:
    """The source of the rule."""
    words = ["nats", "-s", offering.tls_url, "--user", "ann", "--password", "s3cret", "pub", "a", "b"]
    assert subprocess.run([*words, "--tlsca", str(offering.ca)], capture_output=True, check=False).returncode == 0
    refused = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (refused.returncode, "certificate" in refused.stderr) == (1, True)
