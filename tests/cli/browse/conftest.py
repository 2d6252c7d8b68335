"""The browser as its pilot drives it: on a server with a few assets, with a clock that the test turns."""

import html
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
from textual.pilot import Pilot

from natsctl.cli.browse import app as application
from natsctl.cli.browse.actions import CommandRunner
from natsctl.cli.browse.app import BrowseApp
from natsctl.cli.framework.globals import GlobalOptions
from natsctl.client.dial import connect
from natsctl.client.manager import Manager
from natsctl.client.servers import resolve
from natsctl.client.settings import Settings
from natsctl.testing.process import ServerProcess
from tests.support.commands import Run

PICTURES = Path(__file__).parents[3] / "docs" / "images" / "browse"
"""What the screens look like: the pictures of the documentation. `SCREENS=write pytest tests/cli/browse` draws them."""
_CHANGING = (
    (r"terminal-\d+", "terminal-browse"),
    (r"(?s)@font-face \{.*?\}\s*", ""),  # loaded from elsewhere
    (r"Fira Code, monospace", "monospace"),
    (r"\d{4}-\d\d-\d\d(&#160;)\d\d:\d\d:\d\d(\.\d+)?", lambda found: _moment(found[2] or "")),
    (r"(?<=[;>])\d\d:\d\d:\d\d(?=&#160;)", "08:10:00"),
    (r"127\.0\.0\.1:\d{5}", "127.0.0.1:42220"),
    (r"(?<=&#160;)\d+\.\d+\.\d+(?=[&<])", "2.15.2"),
)


def _moment(fraction: str) -> str:
    return "2026-07-14&#160;08:10:00" + ("." + "123456"[: len(fraction) - 1] if fraction else "")


class Browsing:
    def __init__(self, app: BrowseApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot
        self.now_s = 1_000.0

    async def settle(self) -> None:
        for _ in range(2):
            await self.pilot.pause()
            while any(self.app._is_busy(group) for group in ("names", "facts", "messages", "explain")):
                await self.pilot.pause(0.01)
            await self.pilot.pause(0.03)

    async def press(self, *keys: str) -> None:
        """Press keys, each after what the one before has asked for has come."""
        for key in keys:
            await self.pilot.press(key)
            await self.settle()

    async def type(self, text: str) -> None:
        names = {" ": "space", "-": "minus", ".": "full_stop", "/": "slash", ":": "colon", "'": "apostrophe"}
        await self.pilot.press(*(names.get(letter, letter) for letter in text))
        await self.pilot.pause()

    async def tick(self) -> None:
        self.now_s += 1
        self.app._tick()
        await self.settle()

    @property
    def text(self) -> str:
        picture = self.app.export_screenshot()
        rows: dict[float, list[tuple[float, str]]] = {}
        for x, y, part in re.findall(r'<text [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', picture):
            rows.setdefault(float(y), []).append((float(x), part))
        lines = ("".join(part for _, part in sorted(row)) for _, row in sorted(rows.items()))
        return html.unescape("\n".join(lines)).replace("\xa0", " ")

    def looks_like(self, name: str) -> None:
        """Compare the screen with its picture, but for times, versions and ports."""
        picture = self.app.export_screenshot(title="natsctl browse")
        for pattern, text in _CHANGING:
            picture = re.sub(pattern, text, picture)
        path = PICTURES / f"{name}.svg"
        if os.environ.get("SCREENS") == "write":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(picture)
        assert path.read_text() == picture, f"SCREENS=write draws {path.name} anew; look at the difference"


class Browse(Protocol):
    def __call__(self, url: str, size: tuple[int, int] = (80, 24), **options: Any) -> Any: ...


@pytest.fixture
def browse(monkeypatch: pytest.MonkeyPatch) -> Browse:
    monkeypatch.setattr(application, "REFRESH_S", 3600.0)
    monkeypatch.delenv("NO_COLOR", raising=False)

    @asynccontextmanager
    async def opened(
        url: str, size: tuple[int, int] = (80, 24), *, login: dict[str, str] | None = None, **options: Any
    ) -> AsyncIterator[Browsing]:
        flags = GlobalOptions(server=url, **(login or {}))
        connection = await connect(resolve(Settings(url=url, **(login or {})), {}), name="browse")
        connection.patient = connection.reconnects = True
        try:
            read_only = options.get("read_only", False)
            app = BrowseApp(Manager(connection), CommandRunner(flags, read_only=read_only), **options)
            app.catalog.clock = lambda: browsing.now_s if browsing else 1_000.0
            browsing: Browsing | None = None
            async with app.run_test(size=size) as pilot:
                browsing = Browsing(app, pilot)
                await browsing.settle()
                while not app.catalog.attention.complete:
                    await pilot.pause(0.02)
                await browsing.settle()
                yield browsing
        finally:
            await connection.close()

    return opened


@pytest.fixture
def shop(natsctl: Run, shared_server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a server with two streams, two consumers and a bucket of each kind."""
    monkeypatch.setenv("TZ", "UTC")
    body = '{"id": {{Count}}, "customer": {"name": "Ada", "city": "London"}, "items": [{"sku": "A-1", "n": 2}]}'
    for line in (
        ("stream", "add", "ORDERS", "--subjects", "ORDERS.>", "--defaults"),
        ("stream", "add", "PAYMENTS", "--subjects", "PAY.>", "--defaults"),
        ("kv", "add", "CONFIG", "--history", "5"),
        ("kv", "put", "CONFIG", "db.host", "db1.example.net"),
        ("kv", "put", "CONFIG", "db.port", "5432"),
        ("object", "add", "RELEASES"),
        ("publish", "ORDERS.new", body, "--count", "90", "-H", "Trace:t-{{Count}}", "--quiet"),
        ("publish", "ORDERS.paid", "plain text", "--count", "30", "--quiet"),
        ("consumer", "add", "ORDERS", "NEW", "--pull", "--defaults", "--filter", "ORDERS.new"),
        ("consumer", "add", "ORDERS", "BILLING", "--pull", "--defaults", "--filter", "ORDERS.paid"),
    ):
        done = natsctl(*line)
        assert done.code == 0, done.err
    monkeypatch.delenv("NO_COLOR")
    return shared_server.url


@pytest.fixture
def failed(natsctl: Run, shop: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of that server with two dead letters of a stream."""
    for line in (
        ("deadletter", "enable", "ORDERS"),
        ("consumer", "next", "ORDERS", "NEW", "--count", "2", "--term"),
    ):
        done = natsctl(*line)
        assert done.code == 0, done.err
    monkeypatch.delenv("NO_COLOR", raising=False)
    return shop
