"""HTTPS with a base path, a token and connections over TLS: as the reference shows them."""

import asyncio
import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from natsctl.server.instance import ServerInstance
from natsctl.server.options import ServerOptions, TlsOptions
from natsctl.testing.certificates import Authority
from natsctl.testing.process import Kind, ServerProcess
from tests.support import patient_client
from tests.support.differential import as_released

from .test_reference import OF_BUILDS, PASSING, drop, monitoring_port, shape

CONFIG = """
https_port: -1
http_base_path: "/mon/"
server_name: mon
server_metadata {{ zone: east }}
jetstream {{ sync: always }}
max_subscriptions: 500
max_connections: 100
ping_interval: "30s"
authorization {{ token: hidden-word, timeout: 3.5 }}
tls {{ cert_file: "{server}.pem", key_file: "{server}-key.pem", ca_file: "{authority}", verify: true, timeout: 4 }}
"""


def ask(port: int, path: str) -> tuple[int, str]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, tuple[int, str]]]]:
    folder = tmp_path_factory.mktemp("https")
    authority = Authority(folder)
    server = authority.issue("server", dns=["localhost"], addresses=["127.0.0.1"])
    client = authority.issue("client", attributes=[("CN", "derek"), ("O", "Org")])
    config = folder / "nats.conf"
    text = CONFIG.format(server="SERVER", authority=authority.cert)
    config.write_text(text.replace("SERVER.pem", str(server.cert)).replace("SERVER-key.pem", str(server.key)))
    context = ssl.create_default_context(cafile=str(authority.cert))
    context.load_cert_chain(client.cert, client.key)

    async def talk(process: ServerProcess) -> dict[str, tuple[int, str]]:
        url = process.url.replace("nats://", "tls://")
        connection = await patient_client.connect(url, token="hidden-word", tls=context, name="alice")
        await connection.flush()
        port = monitoring_port(process)
        found = {path: await asyncio.to_thread(ask, port, path) for path in PATHS}
        await connection.close()
        return found

    told = {}
    for kind in ("natsctl", "reference"):
        with ServerProcess(folder / kind, cast("Kind", kind), "-c", str(config)) as process:
            told[kind] = asyncio.run(talk(process))
    yield told


PATHS = ("/mon/varz", "/mon/connz", "/mon/connz?auth=1", "/mon/jsz", "/mon/healthz", "/varz", "/mon/", "/", "/mon")


@pytest.mark.reference
@pytest.mark.parametrize("path", PATHS[:-1])
def test_keys_and_values_are_those_of_the_reference(path: str, answers: dict[str, dict[str, tuple[int, str]]]) -> None:
    (status, ours), (expected, theirs) = answers["natsctl"][path], answers["reference"][path]
    assert status == expected
    if not theirs.startswith("{"):
        assert ours == theirs
        return
    assert shape(json.loads(ours)) == shape(drop(json.loads(theirs), OF_BUILDS))
    assert drop(json.loads(ours), CHANGING) == drop(json.loads(as_released(theirs)), CHANGING)


CHANGING = PASSING | {"jetstream", "config", "tls_cipher_suite", "tls_peer_certs"}


@pytest.mark.reference
def test_the_page_is_at_the_base_path_alone_and_the_token_nowhere(
    answers: dict[str, dict[str, tuple[int, str]]],
) -> None:
    assert answers["natsctl"]["/mon"][0] == answers["reference"]["/mon"][0] == 200
    assert "hidden-word" not in str(answers["natsctl"])
    assert json.loads(answers["natsctl"]["/mon/connz?auth=1"][1])["connections"][0]["authorized_user"] == "[REDACTED]"


async def test_new_certificates_are_taken_for_the_next_handshake(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    old, new = authority.issue("old", addresses=["127.0.0.1"]), authority.issue("new", addresses=["127.0.0.1"])
    options = ServerOptions(
        host="127.0.0.1", port=-1, http_host="127.0.0.1", https_port=-1, tls=TlsOptions(old.cert, old.key)
    )

    async def name(port: int) -> Any:
        context = ssl.create_default_context(cafile=str(authority.cert))
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        found = dict(part[0] for part in writer.get_extra_info("peercert")["subject"])
        writer.close()
        return found["commonName"]

    async with ServerInstance(options) as server:
        port = server.port_of("monitoring")
        before = await name(port)
        from msgspec.structs import replace

        server.options = replace(server.options, tls=TlsOptions(new.cert, new.key))
        assert (before, await name(port)) == ("old", "new")
