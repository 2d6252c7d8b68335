"""export, destroy, apply: the account is the same again, on natsctl's server and on the reference.

Random valid accounts are made by plain requests, then carried through the three commands; what is compared are the
configurations as the server says them, without what it or natsctl writes into metadata.
"""

import asyncio
import contextlib
import io
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from natsctl.api.errors import ApiResponseError
from natsctl.cli.main import run
from natsctl.client.dial import connect
from natsctl.client.manager import Manager
from natsctl.client.servers import resolve
from natsctl.client.settings import Settings
from natsctl.desired.assets import AssetKey, without_labels, without_server_made
from natsctl.desired.live import read_live_state
from natsctl.testing.process import Kind, ServerProcess
from tests.desired.random_accounts import Account, accounts

T = TypeVar("T")
EXAMPLES = 30
"""Accounts; they hold more than CONFIGURATIONS together."""
CONFIGURATIONS = 200
WITHIN_S = 30.0
HOUR_NS = 3600 * 1_000_000_000
ROOM_BYTES = 2**20


class LiveServer:
    """A server, and what has been tried on it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.runner = asyncio.Runner()
        self.manager = self.runner.run(self._connect())
        self.tried = 0
        self.refused: list[str] = []

    async def _connect(self) -> Manager:
        return Manager(
            await connect(resolve(Settings(url=self.url, timeout_s=WITHIN_S), {}, None), name="round trip", trace=False)
        )

    def ask(self, work: Awaitable[T]) -> T:

        async def answered() -> T:
            return await work

        return self.runner.run(answered())

    def close(self) -> None:
        self.ask(self.manager.connection.close())
        self.runner.close()

    def clear(self) -> None:
        for name in self.ask(self.manager.stream_names()):
            self.ask(self.manager.stream_delete(name))

    def make(self, account: Account) -> None:
        """Create an account; what the server refuses for its own reasons is left out, and counted."""
        for key, config in sorted(account.items(), key=lambda one: one[0]):
            self.tried += 1
            try:
                if key.consumer:
                    self.ask(self.manager.consumer_create(key.stream, config))
                else:
                    self.ask(self.manager.stream_create(config))
            except ApiResponseError as failure:
                self.refused.append(f"{key}: {failure.text}")

    def account(self) -> Account:
        """All configurations, as the server says them, but of the consumers that mirrors and sources make."""
        assets = self.ask(read_live_state(self.manager)).assets
        configs = {key: without_server_made(without_labels(live.config)) for key, live in assets.items()}
        made_by_server = ("direct", "sourcing")
        return {key: config for key, config in configs.items() if not any(map(config.get, made_by_server))}

    def natsctl(self, *words: str) -> str:
        """What a command prints; it has to succeed. All that is destroyed was made by hand."""
        if words[0] == "destroy":
            named = (
                word for name in self.ask(self.manager.stream_names()) for word in ("--remove", str(AssetKey(name)))
            )
            words = (*words, *named, "--max-removals", "1000")
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(["--server", self.url, "--timeout", f"{WITHIN_S:.0f}s", *words])
        assert code == 0, (words, code, err.getvalue())
        return out.getvalue()


def kinds() -> list[Any]:
    return ["natsctl", "reference"]


@pytest.fixture(scope="module", params=kinds())
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """One server for all accounts, which are cleared away in between."""
    kind: Kind = request.param
    folder = tmp_path_factory.mktemp("round_trip")
    with ServerProcess(folder / "server", kind) as process:
        one = LiveServer(process.url, folder)
        yield one
        one.close()


def made_to_last(account: Account) -> Account:
    """The account with room on a small disk, and with consumers that do not end while they are looked at."""
    lasting: Account = {}
    for key, config in account.items():
        one = dict(config)
        if one.get("consumer_limits"):
            one["consumer_limits"] = {
                name: value for name, value in one["consumer_limits"].items() if name != "inactive_threshold"
            }
        if key.consumer and (one.get("inactive_threshold") or not one.get("durable_name")):
            one["inactive_threshold"] = max(HOUR_NS, one.get("inactive_threshold") or 0)
        elif not key.consumer and one.get("max_bytes", -1) > ROOM_BYTES:
            one["max_bytes"] = ROOM_BYTES
        if not one.get("mirror"):
            one.pop("mirror_direct", None)  # refused, with all consumers of the stream
        one.pop("pause_until", None)  # an operator's doing, which is not exported
        lasting[key] = one
    return lasting


@pytest.mark.live
@pytest.mark.timeout(600)
def test_export_destroy_apply_gives_the_same_account(live: LiveServer) -> None:
    found = 0

    # An account that fails is shown as it is: to find the least one would take minutes.
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), derandomize=True, phases=[Phase.generate])
    @given(accounts(least_streams=3), st.sampled_from([(), ("--split",), ("--full",), ("--format", "json")]))
    def goes_round(account: Account, layout: tuple[str, ...]) -> None:
        nonlocal found
        live.clear()
        live.make(made_to_last(account))
        before = live.account()
        found += len(before)
        if not before:
            return
        path = live.folder / ("account.json" if "json" in layout else "account.yaml")
        path.write_text(live.natsctl("export", "--ephemeral", *layout))
        live.natsctl("destroy", "-f", str(path), "--yes")
        assert live.account() == {}
        live.natsctl("apply", "-f", str(path))
        assert live.account() == before
        live.natsctl("diff", "-f", str(path))

    goes_round()
    assert found >= CONFIGURATIONS
    assert len(live.refused) <= live.tried // 20, live.refused
