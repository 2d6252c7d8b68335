"""The status page in a browser: what it shows, what it survives, and what it must never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import nats
from nats.js.api import ConsumerConfig

from natsctl.server.instance import ServerInstance
from natsctl.server.options import ServerOptions
from tests.support import patient_client
from tests.support.servers import quiet_ports

if TYPE_CHECKING:
    from .conftest import Tab

Opened = Callable[[], AbstractAsyncContextManager["Tab"]]

MARKUP = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


def options(folder: Path, http_port: int = -1, base: str = "") -> ServerOptions:
    """Return a server with JetStream and monitoring."""
    return ServerOptions(
        host="127.0.0.1", port=-1, http_host="127.0.0.1", http_port=http_port, http_base_path=base, jetstream=True,
        store_dir=folder, server_name="hub",
    )  # fmt: skip


@asynccontextmanager
async def traffic(server: ServerInstance) -> AsyncIterator[nats.NATS]:
    """Have a stream, a consumer and a client whose names are markup, as far as names may be."""
    client = await patient_client.connect(server.url, name=MARKUP)
    js = client.jetstream()
    await js.add_stream(name="ORDERS", subjects=["orders.>"], description=MARKUP)
    await js.add_consumer("ORDERS", ConsumerConfig(durable_name="billing", description=MARKUP))
    for number in range(7):
        await js.publish(f"orders.{number}", b"x" * 100)
    yield client
    await client.close()


async def test_streams_consumers_connections_and_health_are_shown_and_markup_stays_text(
    tmp_path: Path, open_tab: Opened
) -> None:
    async with ServerInstance(options(tmp_path)) as server, traffic(server), open_tab() as tab:
        await tab.call("Page.navigate", url=f"http://127.0.0.1:{server.port_of('monitoring')}/")
        await tab.until("document.querySelector('#health.ok') && document.querySelector('#busy td')")
        row = await tab.until("document.querySelector('#streams tr')?.innerText")
        assert [cell.strip() for cell in row.replace("\t", "\n").split("\n") if cell.strip()][:3] == [
            "ORDERS",
            MARKUP,
            "7",
        ]
        assert (await tab.value("document.querySelector('#consumers tr').innerText")).split()[:2] == [
            "billing",
            "ORDERS",
        ]
        assert MARKUP in await tab.value("document.querySelector('#busy tr').innerText")
        assert await tab.value("document.title") == "hub · natsctl server"
        assert await tab.value("window.hacked === undefined && document.images.length === 0")
        assert await tab.value("document.scripts.length") == 1
        assert tab.complaints() == []


async def test_the_page_goes_on_after_the_server_was_started_again(tmp_path: Path, open_tab: Opened) -> None:
    async with open_tab() as tab:
        (port,) = quiet_ports(1)
        async with ServerInstance(options(tmp_path, port)):
            await tab.call("Page.navigate", url=f"http://127.0.0.1:{port}/")
            await tab.until("document.querySelector('#health.ok')")
        await tab.until("document.body.classList.contains('lost') && document.querySelector('#health.bad')")
        async with ServerInstance(options(tmp_path, port)) as second:
            await tab.until("!document.body.classList.contains('lost') && document.querySelector('#health.ok')")
            await tab.until(f"before && before.server_id === {second.server_id!r}")


async def test_a_server_without_jetstream_shows_no_streams(tmp_path: Path, open_tab: Opened) -> None:
    plain = ServerOptions(host="127.0.0.1", port=-1, http_host="127.0.0.1", http_port=-1)
    async with ServerInstance(plain) as server, open_tab() as tab:
        await tab.call("Page.navigate", url=f"http://127.0.0.1:{server.port_of('monitoring')}/")
        await tab.until("document.querySelector('#health.ok')")
        assert await tab.value("[...document.querySelectorAll('.jetstream')].every((one) => one.hidden)")
        assert tab.complaints() == []


async def test_it_fits_a_phone_and_a_desk_in_light_and_dark(tmp_path: Path, open_tab: Opened) -> None:
    grounds = set()
    async with ServerInstance(options(tmp_path)) as server, traffic(server), open_tab() as tab:
        for width, scheme in ((360, "light"), (360, "dark"), (1280, "light"), (1280, "dark")):
            await tab.call(
                "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500
            )
            await tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            await tab.call("Page.navigate", url=f"http://127.0.0.1:{server.port_of('monitoring')}/")
            await tab.until("document.querySelector('#health.ok') && document.querySelector('#streams td')")
            assert await tab.value("document.documentElement.scrollWidth") <= width
            grounds.add(await tab.value("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2


async def test_without_scripts_there_are_links_to_every_endpoint_below_the_base_path(
    tmp_path: Path, open_tab: Opened
) -> None:
    async with ServerInstance(options(tmp_path, base="/mon/")) as server, open_tab() as tab:
        await tab.call("Emulation.setScriptExecutionDisabled", value=True)
        root = f"http://127.0.0.1:{server.port_of('monitoring')}/mon"
        await tab.call("Page.navigate", url=root)
        names = [
            "varz",
            "jsz",
            "connz",
            "accountz",
            "accstatz",
            "subsz",
            "routez",
            "leafz",
            "gatewayz",
            "raftz",
            "healthz",
            "debug/vars",
            "metrics",
        ]
        links = "[...document.querySelectorAll('nav a')].map((one) => one.href)"
        assert await tab.until(f"document.readyState === 'complete' && {links}") == [f"{root}/{name}" for name in names]
        assert await tab.value("getComputedStyle(document.querySelector('main .needs-script')).display") == "none"
