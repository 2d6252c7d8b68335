"""`natsctl server repair`: refused streams are shown, and made of what can be read of them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from natsctl.server.instance import ServerInstance
from natsctl.server.log.lines import Log
from natsctl.server.monitor.document import pieces
from natsctl.server.monitor.jsz import JszOptions, jsz
from natsctl.server.options import EncryptionOptions, ServerOptions
from tests.support.commands import Run
from tests.support.raw_client import RawClient


async def _with_server(path: Path, requests: list[tuple[str, dict[str, Any]]], key: str = "") -> list[dict[str, Any]]:
    encryption = EncryptionOptions(key)
    options = ServerOptions(host="127.0.0.1", port=-1, jetstream=True, store_dir=path, encryption=encryption)
    async with ServerInstance(options, Log(with_time=False)) as server:
        client = await RawClient.connect(server.url)
        found = [
            json.loads((await client.request(subject.encode(), json.dumps(body).encode()))[1])
            for subject, body in requests
        ]
        await client.close()
    return found


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Return the folder of a server whose stream ORDERS has the journal of LOGS."""
    requests: list[tuple[str, dict[str, Any]]] = []
    for name in ("ORDERS", "LOGS"):
        config = {"name": name, "subjects": [f"{name}.>"]}
        requests.append((f"$JS.API.STREAM.CREATE.{name}", config))
        consumer = {"stream_name": name, "config": {"durable_name": f"of-{name}", "ack_policy": "explicit"}}
        requests.append((f"$JS.API.CONSUMER.CREATE.{name}.of-{name}", {**consumer, "action": ""}))
        requests += [(f"{name}.{n}", {}) for n in range(5)]
    assert not [answer for answer in asyncio.run(_with_server(tmp_path, requests)) if "error" in answer]
    streams = tmp_path / "jetstream" / "streams"
    (streams / "s000001" / "journal-0.log").write_bytes((streams / "s000002" / "journal-0.log").read_bytes())
    return tmp_path


def test_refused_streams_are_shown_and_repaired(offline: Run, damaged: Path) -> None:
    (shown,) = offline("server", "repair", str(damaged), "-j").json
    assert (shown["account"], shown["name"], shown["repaired"]) == ("$G", "ORDERS", False)
    assert "journal-0.log belongs to stream 2" in shown["reason"]
    assert "$G > ORDERS: " in offline("server", "repair", str(damaged)).out
    assert offline("server", "repair", str(damaged), "ORDERS").code == 2  # nobody can be asked
    assert offline("server", "repair", str(damaged), "OTHER", "--force").code == 2
    (made,) = offline("server", "repair", str(damaged), "ORDERS", "--force", "-j").json
    assert made["repaired"] and made["messages"] == 5 and "consumers are lost" in made["notes"][0]
    assert (damaged / "jetstream" / made["remains"] / "journal-0.log").exists()
    assert "every stream is served" in offline("server", "repair", str(damaged)).err
    asked = [("$JS.API.STREAM.INFO.ORDERS", {}), ("$JS.API.CONSUMER.NAMES.LOGS", {}), ("ORDERS.6", {})]
    orders, logs, ack = asyncio.run(_with_server(damaged, asked))
    assert orders["state"]["messages"] == 5 and logs["consumers"] == ["of-LOGS"] and ack["seq"] == 6


def test_a_lost_configuration_is_given(offline: Run, damaged: Path, tmp_path: Path) -> None:
    (damaged / "jetstream" / "streams" / "s000001" / "meta").unlink()
    done = offline("server", "repair", str(damaged), "ORDERS", "--force")
    assert done.code == 1 and "configuration of $G/ORDERS has to be given" in done.err
    file = tmp_path / "orders.json"
    file.write_text('{"subjects": ["ORDERS.>"], "max_msgs": 100}')
    assert offline("server", "repair", str(damaged), "ORDERS", "--force", "--config", str(file)).code == 0
    (orders,) = asyncio.run(_with_server(damaged, [("$JS.API.STREAM.INFO.ORDERS", {})]))
    assert orders["state"]["messages"] == 5 and orders["config"]["max_msgs"] == 100


def test_an_encrypted_store_is_repaired_with_the_key_of_the_servers_configuration(
    offline: Run, damaged: Path, tmp_path: Path
) -> None:
    asyncio.run(_with_server(damaged, [], "secret"))
    config = tmp_path / "nats.conf"
    done = offline("server", "repair", str(damaged))
    assert done.code == 1 and "encrypted store encountered with no main key" in done.err
    assert offline("server", "repair", str(damaged), "--server-config", str(config)).code == 2
    config.write_text("jetstream { key: wrong }\n")
    done = offline("server", "repair", str(damaged), "--server-config", str(config))
    assert done.code == 1 and "unable to recover keys" in done.err
    config.write_text("jetstream { key: secret }\n")
    (made,) = offline("server", "repair", str(damaged), "ORDERS", "--force", "-j", "--server-config", str(config)).json
    assert made["repaired"] and made["messages"] == 5
    (orders,) = asyncio.run(_with_server(damaged, [("$JS.API.STREAM.INFO.ORDERS", {})], "secret"))
    assert orders["state"]["messages"] == 5
    files = [path.read_bytes() for path in (damaged / "jetstream").rglob("*") if path.is_file()]
    assert not [content for content in files if b"ORDERS" in content]


def test_a_folder_without_a_store_and_a_store_in_use_are_refused(offline: Run, damaged: Path, tmp_path: Path) -> None:
    assert offline("server", "repair", str(tmp_path / "nothing")).code == 2
    assert not (tmp_path / "nothing").exists()


def test_a_refused_stream_is_shown_and_removed_by_commands(natsctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from natsctl.api.catalogue import error
    from natsctl.api.errors import ApiResponseError
    from natsctl.client.manager import Manager

    async def stream_info(manager: Manager, name: str, **more: Any) -> Any:
        raise ApiResponseError(error(10194, err="streams/s000001/meta is damaged"))

    assert natsctl("str", "add", "REFUSED", "--subjects", "refused").code == 0
    monkeypatch.setattr(Manager, "stream_info", stream_info)
    done = natsctl("str", "info", "REFUSED")
    assert "meta is damaged" in done.err and "natsctl server repair" in done.err
    assert natsctl("str", "rm", "REFUSED", "--dry-run").code == 0
    assert natsctl("str", "rm", "REFUSED", "--force").code == 0


def test_monitoring_names_refused_streams(damaged: Path) -> None:
    async def shown() -> Any:
        options = ServerOptions(host="127.0.0.1", port=-1, jetstream=True, store_dir=damaged)
        async with ServerInstance(options, Log(with_time=False)) as server:
            text = b"".join(pieces(jsz(server, JszOptions(accounts=True, streams=True))))
            return json.loads(text)["account_details"]

    (account,) = asyncio.run(shown())
    assert list(account["offline"]) == ["ORDERS"] and "journal" in account["offline"]["ORDERS"]
