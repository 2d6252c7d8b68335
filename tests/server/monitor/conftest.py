"""A disk with room for tests of the monitor, and a headless Chromium for the status page, where one is installed."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

WITHIN_S = 60.0
"""How long a page may take for what it is to show."""
STARTS_WITHIN_S = 100.0


def disk(free: int) -> Any:
    usage = type("usage", (), {"total": 100 << 30, "used": 100 - free << 30, "free": free << 30})
    return patch("shutil.disk_usage", return_value=usage)


@pytest.fixture(autouse=True)
def disk_with_room() -> Iterator[None]:
    """Report no problem of the disk that the tests run on."""
    with disk(free=60):
        yield


class Tab:
    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._number = 0
        self.events: list[dict[str, Any]] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        await self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            message = json.loads(await asyncio.wait_for(self._socket.recv(), WITHIN_S))
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    async def value(self, expression: str) -> Any:
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return result["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Return the value of an expression once it is something; an element counts, though its value is empty."""
        async with asyncio.timeout(WITHIN_S):
            while (value := await self.value(expression)) in (None, False, "", []):
                await asyncio.sleep(0.05)
        return value

    def complaints(self) -> list[str]:
        """Return what the page's console and its policy complained of, and what it asked of other origins."""
        told = [
            json.dumps(one) for one in self.events if one.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown")
        ]
        asked = [
            one["params"]["request"]["url"] for one in self.events if one.get("method") == "Network.requestWillBeSent"
        ]
        return told + [url for url in asked if not url.startswith(("http://127.0.0.1:", "data:"))]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    binary = next((found for name in names if (found := shutil.which(name))), None)
    if binary is None:
        pytest.skip("chromium is not on PATH")
    pytest.importorskip("websockets")
    profile = tmp_path_factory.mktemp("chromium")
    flags = ["--headless=new", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={profile}"]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")
    command = [binary, *flags, "about:blank"]
    told = tmp_path_factory.mktemp("told") / "stderr"  # a pipe that nobody reads on would fill
    with (
        told.open("wb") as out,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=out) as process,
    ):
        try:
            yield _devtools_port(process, told)
        finally:
            process.kill()


def _devtools_port(process: subprocess.Popen[bytes], told: Path) -> int:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline:
        found = re.search(rb"DevTools listening on ws://127\.0\.0\.1:(\d+)/", told.read_bytes())
        if found:
            return int(found[1])
        time.sleep(0.02)
    raise AssertionError(f"chromium did not start: {told.read_text(errors='replace')}")


@pytest.fixture
def open_tab(chromium: int) -> Callable[[], AbstractAsyncContextManager[Tab]]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Tab]:
        from websockets.asyncio.client import connect

        def new() -> dict[str, Any]:
            request = urllib.request.Request(f"http://127.0.0.1:{chromium}/json/new?about:blank", method="PUT")
            with urllib.request.urlopen(request) as answer:
                found: dict[str, Any] = json.load(answer)
            return found

        target = await asyncio.to_thread(new)
        async with connect(target["webSocketDebuggerUrl"], max_size=None) as socket:
            tab = Tab(socket)
            for domain in ("Runtime", "Log", "Network", "Page"):
                await tab.call(f"{domain}.enable")
            yield tab
            await tab.call("Page.close")

    return opened
