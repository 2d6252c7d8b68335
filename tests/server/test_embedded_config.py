"""What a user may say about the embedded server, and that a hub is reached from it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from natsctl.server.conf.syntax import ConfError
from natsctl.server.embedded import EmbeddedServer, embedded_options
from tests.server.leaf.crossing import across
from tests.support import patient_client
from tests.support.leaf_servers import leaf_port, linked, server


def test_without_a_file_it_is_as_ever(tmp_path: Path) -> None:
    options = embedded_options(tmp_path, {})
    assert (options.host, options.server_name, options.jetstream) == ("127.0.0.1", "natsctl-embedded", True)
    assert (options.store_dir, options.leafnodes) == (tmp_path, None)


def test_the_file_in_the_data_folder_or_of_the_variable_makes_it_a_leaf_node(tmp_path: Path) -> None:
    text = 'server_name: mine\njetstream { domain: laptop }\nleafnodes { remotes: [ { url: "nats-leaf://hub" } ] }\n'
    (tmp_path / "nats.conf").write_text(text)
    other = tmp_path / "other.conf"
    other.write_text(text.replace("mine", "other"))
    for options, name in (
        (embedded_options(tmp_path, {}), "mine"),
        (embedded_options(tmp_path, {"NATSCTL_SERVER_CONFIG": str(other)}), "other"),
    ):
        assert (options.server_name, options.domain) == (name, "laptop")
        assert options.leafnodes is not None
        assert [url.address for url in options.leafnodes.remotes[0].urls] == ["hub:7422"]


def test_what_is_not_for_a_file_to_say_is_an_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "nats.conf").write_text("server_name: x\nport: 4222\n")
    with pytest.raises(ConfError, match=r"nats.conf:2: port: not for the embedded server"):
        embedded_options(tmp_path, {})


def test_a_variable_that_names_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="gone"):
        embedded_options(tmp_path, {"NATSCTL_SERVER_CONFIG": str(tmp_path / "gone.conf")})


async def test_an_embedded_server_serves_its_streams_through_a_hub(tmp_path: Path) -> None:
    hub_config = 'jetstream { domain: hub }\nleafnodes { listen: "127.0.0.1:-1" }\n'
    with server(tmp_path / "hub", "natsctl", "HUB", hub_config) as hub:
        data = tmp_path / "data"
        data.mkdir()
        (data / "nats.conf").write_text(
            "jetstream { domain: laptop }\n"
            f'leafnodes {{ remotes: [ {{ url: "nats-leaf://127.0.0.1:{leaf_port(hub)}" }} ] }}\n'
        )
        embedded = EmbeddedServer(data)
        await asyncio.to_thread(embedded.start)
        try:
            await asyncio.to_thread(linked, hub)
            async with (
                await patient_client.connect(hub.url) as client,
                await patient_client.connect(embedded.url) as laptop,
            ):
                await across(client, laptop)
                js = client.jetstream(domain="laptop")
                await js.add_stream(name="NOTES", subjects=["notes"])
                assert (await js.publish("notes", b"x")).domain == "laptop"
        finally:
            await asyncio.to_thread(embedded.stop)
