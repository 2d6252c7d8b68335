"""A server with `allow_non_tls` offers TLS in INFO, and each client of natsctl uses it if the user asks for it."""

import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from natsctl.api.errors import ExitCode
from natsctl.cli.main import run as run_main
from natsctl.testing.certificates import Authority
from natsctl.testing.process import ServerProcess


@dataclass
class TlsServer:
    """A running server; `plain_url` and `tls_url` lead to the same port."""

    plain_url: str
    tls_url: str
    ca: Path


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
