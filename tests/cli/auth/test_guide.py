"""The guide of the nats tool to `auth`, line by line on nats-server."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from natsctl.testing.process import ServerProcess

Run = Callable[..., tuple[int, str, str]]
FIRST = """
auth op add MyOperator
auth account add MyAccount --defaults
auth user add MyUser MyAccount --defaults
auth user add admin SYSTEM --defaults
auth user cred system.cred admin SYSTEM
"""
CONFIG = """
operator: {folder}/nats/nsc/stores/MyOperator/MyOperator.jwt
resolver: {{ type: full, dir: "{folder}/jwt" }}
"""
LOGIN = """
auth account push MyAccount --context system
auth user cred myuser.cred MyUser MyAccount
"""
PERMISSIONS = """
auth user add echosrv MyAccount --sub-allow echo --pub-allow _INBOX.> --credential service.cred --defaults
auth user edit MyUser MyAccount --pub-allow echo --sub-allow _INBOX.> --credential myuser.cred
"""
SHARING = """
auth acct add OTHER --defaults
auth user add test MyAccount --credential myaccount.cred --defaults
auth user add test OTHER --credential other.cred --defaults
auth a export add abc a.b.c.> MyAccount
auth a import add abc a.b.c.> OTHER --source MyAccount
auth account export add weather.v1 weather.v1.> MyAccount --service
auth account import add weather weather.v1.> OTHER --source MyAccount --local weather.> --service
auth account mappings add MyAccount old new
auth account push MyAccount --context system
auth account push OTHER --context system
"""
TOKENS = """
auth account add API --defaults
auth account add CLIENT --defaults
auth user add test API --credential api.cred --defaults
auth user add user CLIENT --credential client.cred --defaults
auth account export add weatherAPI weather.*.> API --token-position 2 --service
auth account import add weatherAPI weather.ID.> CLIENT --source API --local weather.> --service
auth account push API --context system
auth account push CLIENT --context system
"""


@pytest.fixture
def lines(natsctl: Run) -> Callable[..., None]:
    def run(text: str, **given: str) -> None:
        for line in text.strip().splitlines():
            for name, value in given.items():
                line = line.replace(name, value)
            code, _, err = natsctl(*line.split())
            assert code == 0, f"{line}\n{err}"

    return run


@pytest.mark.reference
def test_the_guide_works_on_nats_server(
    lines: Callable[..., None], natsctl: Run, begun: Callable[..., Any], tmp_path: Path
) -> None:
    lines(FIRST)
    config = tmp_path / "nats-server.conf"
    config.write_text(CONFIG.format(folder=tmp_path / "data"))
    with ServerProcess(tmp_path / "server", "reference", "-c", str(config)) as server:
        lines(f"ctx add system --server {server.url} --creds {tmp_path}/system.cred")
        lines(LOGIN)

        @contextlib.contextmanager
        def beside(*words: str) -> Iterator[Any]:
            process = begun(*words, "--server", server.url)
            process.stderr.readline()
            yield process
            process.kill()

        def request(subject: str, creds: str) -> tuple[int, str]:
            code, out, _ = natsctl("req", subject, "x", "--creds", creds, "--server", server.url, "--raw")
            return code, out.strip()

        with beside("reply", "echo", "--echo", "--creds", "myuser.cred"):
            assert request("echo", "myuser.cred") == (0, "x")
        lines(PERMISSIONS)
        with beside("reply", "echo", "--echo", "--creds", "service.cred"):
            assert request("echo", "myuser.cred") == (0, "x")
        assert request("other", "myuser.cred")[0] == 6
        lines(SHARING)
        with beside("sub", "a.b.c.d", "--creds", "other.cred", "--count", "1") as heard:
            lines(f"pub a.b.c.d shared -q --creds myaccount.cred --server {server.url}")
            assert "\nshared\n" in heard.communicate(timeout=30)[0]
        with beside("sub", "new", "--creds", "myaccount.cred", "--count", "1") as heard:
            lines(f"pub old mapped -q --creds myaccount.cred --server {server.url}")
            assert "\nmapped\n" in heard.communicate(timeout=30)[0]
        with beside("reply", "weather.v1.>", "cold", "--creds", "myaccount.cred"):
            assert request("weather.malta", "other.cred") == (0, "cold")
        lines(TOKENS.partition("auth account import")[0])
        client = json.loads(natsctl("auth", "account", "info", "CLIENT", "-j")[1])["sub"]
        lines("auth account import" + TOKENS.partition("auth account import")[2], ID=client)
        with beside("reply", "weather.*.>", "warm", "--creds", "api.cred"):
            assert request("weather.lon", "client.cred") == (0, "warm")
