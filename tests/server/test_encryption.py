"""A server with `jetstream { key }`: what clients see, what is on the disk, what is refused; on both servers."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from natsctl.testing.process import Kind, ServerProcess
from tests.support import patient_client

SECRETS = (b"payload-in-clear", b"subject-in-clear", b"Header-In-Clear", b"described-in-clear", b"value-in-clear")
MESSAGES = 42
KEYS = ("first-key", "second-key", "third-key")
both = pytest.mark.parametrize("kind", ["natsctl", "reference"])


class Site:
    def __init__(self, folder: Path, kind: Kind) -> None:
        self.kind: Kind = kind
        self.folder = folder / "server"
        self.config = folder / "nats.conf"

    def server(self, block: str, rest: str = "") -> ServerProcess:
        self.config.write_text(f"jetstream {{ {block} }}\n{rest}\n")
        return ServerProcess(self.folder, self.kind, "-c", str(self.config))

    def in_clear(self) -> set[bytes]:
        contents = [path.read_bytes() for path in (self.folder / "jetstream").rglob("*") if path.is_file()]
        return {secret for secret in SECRETS for content in contents if secret in content}

    def image(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (self.folder / "jetstream").rglob("*") if path.is_file()}


@pytest.fixture
def site(tmp_path: Path, kind: Kind) -> Site:
    return Site(tmp_path, kind)


async def fill(server: ServerProcess) -> None:
    client = await patient_client.connect(server.url)
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["subject-in-clear.*"], description="described-in-clear", compression="s2")
    for number in range(MESSAGES):
        headers = {"Header-In-Clear": "1"} if number % 3 == 0 else None
        await js.publish(f"subject-in-clear.{number % 7}", b"payload-in-clear %d" % number, headers=headers)
    await js.delete_msg("S", 5)
    pulled = await js.pull_subscribe("subject-in-clear.1", "C", "S")
    for message in await pulled.fetch(3, timeout=patient_client.PATIENCE_S):
        await message.ack_sync()
    bucket = await js.create_key_value(bucket="B", history=3)
    for number in range(5):
        await bucket.put("subject-in-clear", b"value-in-clear %d" % number)
    await js.purge_stream("S", subject="subject-in-clear.6")
    await client.close()


async def seen(server: ServerProcess, consumers: bool = True) -> dict[str, Any]:
    """Return what clients see of what `fill` made; without `consumers` of streams alone."""
    client = await patient_client.connect(server.url)
    js = client.jetstream()
    state = (await js.stream_info("S")).state
    found = await js.consumer_info("S", "C") if consumers else None
    messages = [await js.get_msg("S", seq) for seq in (1, 2, MESSAGES - 1)]
    bucket = await js.key_value("B")
    entry = await bucket.get("subject-in-clear")
    await client.close()
    return {
        "state": (state.messages, state.first_seq, state.last_seq),
        "consumer": (found.ack_floor.stream_seq, found.num_pending, found.num_ack_pending) if found else None,
        "messages": [(each.subject, each.data, each.headers) for each in messages],
        "value": (entry.value, entry.revision),
    }


@both
@pytest.mark.parametrize("cipher", ["", "cipher: AES"])
async def test_an_encrypted_store_serves_what_it_holds_and_nothing_stands_in_clear(
    site: Site, kind: Kind, cipher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JS_KEY", "s3cr3t!!")
    server = site.server(f"key: $JS_KEY, {cipher}", "http: 127.0.0.1:-1")
    with server:
        await fill(server)
        before = await seen(server)
        if kind == "natsctl":  # nats-server would lose what was double-acked in the last moments
            server.kill()
    assert before["state"][0] < MESSAGES and not site.in_clear()
    with server:
        assert await seen(server) == before
        ports = json.loads((site.folder / f"nats-server_{server.pid}.ports").read_text())
        for page in ("varz", "jsz?config=1"):
            text = urlopen(f"{ports['monitoring'][0]}/{page}", timeout=30).read().decode()
            assert "s3cr3t" not in text
    assert not site.in_clear()
    name = "AES-GCM" if "AES" in cipher else "ChaCha20-Poly1305"
    assert f"  Encryption:      {name}" in server.log() and "s3cr3t" not in server.log()


@both
async def test_a_plain_store_is_encrypted_and_keys_and_ciphers_change_at_a_start(site: Site) -> None:
    first, second, _ = KEYS
    ours = site.kind == "natsctl"  # nats-server loses consumers with the second key
    with site.server("") as server:
        await fill(server)
        before = await seen(server, ours)
    assert SECRETS[1] in site.in_clear()
    for block in (
        f"encryption_key: {first}",
        f"ek: {second}, prev_ek: {first}, cipher: aes",
        f"key: {first}, prev_key: {second}, cipher: chachapoly",
    ):
        with site.server(block) as server:
            assert await seen(server, ours) == before, block
        if ours:  # nats-server leaves subjects in a file of before
            assert not site.in_clear(), block
        assert not any(key in server.log() for key in KEYS)


@both
async def test_another_key_serves_nothing_and_changes_nothing(site: Site) -> None:
    """Natsctl's server does not start; nats-server starts without the stream."""
    with site.server(f"key: {KEYS[0]}") as server:
        await fill(server)
        before = await seen(server)
    image = site.image()
    for block, text in ((f"key: {KEYS[1]}, prev_key: {KEYS[2]}", "unable to recover keys"), ("", ""), ('key: ""', "")):
        text = text or {"natsctl": "encrypted store encountered with no main key"}.get(
            site.kind, "encryption not enabled"
        )
        server = site.server(block)
        if site.kind == "natsctl":
            status, log = fails(server)
            assert status == 1 and text in log and site.image() == image
        else:
            with server:
                assert text in server.log()
    if site.kind == "natsctl":
        with site.server(f"key: {KEYS[0]}") as server:
            assert await seen(server) == before


def fails(server: ServerProcess) -> tuple[int, str]:
    """Start a server that refuses; return its exit status and what it printed."""
    done = subprocess.run(server._command(), capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["natsctl"])
async def test_a_backup_is_plain_and_is_restored_into_any_server(site: Site, tmp_path: Path) -> None:
    def natsctl(server: ServerProcess, *words: str) -> None:
        command = [sys.executable, "-m", "natsctl", "-s", server.url, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr

    with site.server(f"key: {KEYS[0]}") as server:
        await fill(server)
        before = await seen(server)
        for name in ("S", "KV_B"):
            await asyncio.to_thread(natsctl, server, "stream", "backup", name, str(tmp_path / name))
    (tmp_path / "other").mkdir()
    for other, block in ((Site(tmp_path / "other", "natsctl"), ""), (Site(tmp_path, "natsctl"), f"key: {KEYS[0]}")):
        with other.server(block) as server:
            for name in ("S", "KV_B"):
                if block:
                    await asyncio.to_thread(natsctl, server, "stream", "rm", name, "--force")
                await asyncio.to_thread(natsctl, server, "stream", "restore", str(tmp_path / name))
            assert await seen(server) == before
        assert bool(other.in_clear()) is not bool(block)
