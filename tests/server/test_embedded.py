"""The embedded server: owners, guests, and its configuration."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from natsctl.api.errors import StorageError
from natsctl.server import embedded
from natsctl.server.conf.syntax import ConfError
from natsctl.server.embedded import (
    EmbeddedServer,
    SharedServer,
    default_data_dir,
    embedded_options,
    load_shared,
    save_shared,
)
from natsctl.server.instance import ServerThread
from natsctl.server.options import ServerOptions
from natsctl.server.storage import make_durable_folder
from tests.support.callouts import until
from tests.support.raw_client import RawClient

PATIENCE_S = 60.0
OTHER_COMMAND = """
import sys
from pathlib import Path
from natsctl.server import embedded
from natsctl.server.embedded import EmbeddedServer
embedded.GUEST_WAIT_S = float(sys.argv[2])
server = EmbeddedServer(Path(sys.argv[1]), lambda text: print("notify", text, flush=True))
server.start()
print("owner" if server.owner else "guest", server.url, flush=True)
sys.stdin.readline()
server.stop()
print("stopped", flush=True)
"""


class OtherCommand:
    def __init__(self, data_dir: Path, guest_wait_s: float = embedded.GUEST_WAIT_S) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OTHER_COMMAND, str(data_dir), str(guest_wait_s)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.role, self.url = self.process.stdout.readline().split()

    def end(self) -> str:
        out, _ = self.process.communicate("\n", timeout=PATIENCE_S)
        return out

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def others(tmp_path: Path) -> Iterator[list[OtherCommand]]:
    commands: list[OtherCommand] = []
    yield commands
    for command in commands:
        if command.process.poll() is None:
            command.kill()


async def api(url: str, verb: str, body: object = None) -> dict[str, object]:
    client = await RawClient.connect(url)
    try:
        _, answer = await client.request(f"$JS.API.{verb}".encode(), json.dumps(body).encode() if body else b"")
        return json.loads(answer)
    finally:
        await client.close()


def call(url: str, verb: str, body: object = None) -> dict[str, object]:
    return asyncio.run(api(url, verb, body))


STREAM = {"name": "S", "subjects": ["s.>"]}


def test_the_data_folder_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATSCTL_DATA", "/mine")
    monkeypatch.setenv("XDG_DATA_HOME", "/x")
    assert EmbeddedServer().data_dir == Path("/mine")
    monkeypatch.delenv("NATSCTL_DATA")
    assert default_data_dir() == Path("/x/natsctl")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/u")
    assert default_data_dir() == Path("/home/u/.local/share/natsctl")


def test_the_first_command_owns_the_server_and_publishes_it_to_its_user_only(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        assert server.owner
        published = tmp_path / "server.json"
        assert stat.S_IMODE(published.stat().st_mode) == 0o600
        content = json.loads(published.read_text())
        assert content["pid"] == os.getpid()
        assert server.url == content["url"].replace("//", f"//{content['token']}@")
        assert call(server.url, "STREAM.CREATE.S", STREAM)["config"]
    assert not published.exists()


def test_without_the_token_nobody_is_let_in(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server, pytest.raises(ConnectionError):
        call(server.url.replace(server.url.split("//")[1].split("@")[0], "guess"), "INFO")


def test_a_guest_takes_over_at_the_same_address_when_the_owner_is_killed(
    tmp_path: Path, others: list[OtherCommand], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "PORT_WAIT_S", PATIENCE_S)  # a busy machine takes its time
    others.append(OtherCommand(tmp_path))
    with EmbeddedServer(tmp_path) as server:
        url = server.url
        call(url, "STREAM.CREATE.S", STREAM)
        others[0].kill()
        until(lambda: server.owner)
        assert server.url == url
        assert call(url, "STREAM.INFO.S")["config"]


def test_an_owner_that_ends_hands_over_to_its_guests(
    tmp_path: Path, others: list[OtherCommand], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PORT_WAIT_S", "START_WAIT_S"):
        monkeypatch.setattr(embedded, name, PATIENCE_S)  # a busy machine takes its time
    others.append(OtherCommand(tmp_path, guest_wait_s=0.1))
    guests = [EmbeddedServer(tmp_path) for _ in range(3)]
    for guest in guests:
        guest.start()
    url = guests[0].url
    call(url, "STREAM.CREATE.S", STREAM)
    said = others[0].end()
    assert "waiting for it to end or to take over" in said
    assert "handing the embedded server over" in said
    until(lambda: sum(guest.owner for guest in guests) == 1 and all(g.owner or g.joined for g in guests))
    assert {guest.url for guest in guests} == {url}
    assert call(url, "STREAM.INFO.S")["config"]
    for guest in sorted(guests, key=lambda guest: guest.owner):
        guest.stop()


def test_an_owner_waits_for_a_guest_that_ends_soon(tmp_path: Path, others: list[OtherCommand]) -> None:
    others.append(OtherCommand(tmp_path, guest_wait_s=PATIENCE_S))
    guest = EmbeddedServer(tmp_path)
    guest.start()
    with others[0].process as process:
        process.stdin.write("\n")
        process.stdin.flush()
        assert "waiting" in process.stdout.readline()
        guest.stop()
        said = process.stdout.read()
    assert said == "stopped\n"


def test_a_stale_file_is_not_believed(tmp_path: Path) -> None:
    with ServerThread(ServerOptions(host="127.0.0.1", port=-1)) as stranger:
        save_shared(tmp_path, SharedServer(stranger.url, "old", 1, "NOLD"))
        with EmbeddedServer(tmp_path) as server:
            assert server.owner
            assert urlsplit(server.url).port != stranger.port
    (tmp_path / "server.json").write_text("not json")
    with EmbeddedServer(tmp_path) as server:
        assert server.owner


def test_a_store_held_by_a_server_that_shares_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "START_WAIT_S", 0.2)
    options = ServerOptions(host="127.0.0.1", port=-1, jetstream=True, store_dir=tmp_path)
    with ServerThread(options), pytest.raises(StorageError, match="in use by another process"):
        EmbeddedServer(tmp_path).start()


def test_ten_commands_at_once_share_one_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "START_WAIT_S", PATIENCE_S)  # a busy machine takes its time
    servers = [EmbeddedServer(tmp_path) for _ in range(10)]
    threads = [threading.Thread(target=server.start) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({server.url for server in servers}) == 1
    assert sum(server.owner for server in servers) == 1
    shared = load_shared(tmp_path)
    assert shared is not None
    assert shared.client_url == servers[0].url
    for server in sorted(servers, key=lambda server: server.owner):
        server.stop()


def test_a_folder_that_another_command_makes_meanwhile_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, exists = tmp_path / "jetstream", Path.exists

    def made_meanwhile(path: Path) -> bool:
        folder.mkdir(exist_ok=True)
        return exists(path)

    monkeypatch.setattr(Path, "exists", made_meanwhile)
    make_durable_folder(folder)
    monkeypatch.undo()
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="not a directory"):
        make_durable_folder(tmp_path / "file" / "jetstream")


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
