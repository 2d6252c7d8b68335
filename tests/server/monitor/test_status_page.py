"""The status page in a browser: what it shows, what it survives, and what it must never run."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import nats
import pytest
from msgspec.structs import replace
from nats.js.api import ConsumerConfig, StorageType

from natsctl.server.instance import ServerInstance
from natsctl.server.options import ServerOptions
from tests.support import patient_client
from tests.support.servers import quiet_ports

from .test_endpoints import OPTIONS

if TYPE_CHECKING:
    from .conftest import Tab

pytestmark = pytest.mark.live
Opened = Callable[[], AbstractAsyncContextManager["Tab"]]

MARKUP = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


def options(folder: Path, http_port: int = -1, base: str = "") -> ServerOptions:
    more = {"http_port": http_port, "http_base_path": base, "store_dir": folder, "server_name": "hub"}
    return replace(OPTIONS, jetstream=True, **more)


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
        cells = [cell.strip() for cell in row.replace("\t", "\n").split("\n") if cell.strip()]
        assert cells[:3] == ["ORDERS", MARKUP, "7"]
        row = await tab.value("document.querySelector('#consumers tr').innerText")
        assert row.split()[:2] == ["billing", "ORDERS"]
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
    async with ServerInstance(OPTIONS) as server, open_tab() as tab:
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
        names = "varz jsz streamz consumerz problemz connz accountz accstatz subsz routez leafz gatewayz raftz healthz"
        links = "[...document.querySelectorAll('nav a')].map((one) => one.href)"
        assert await tab.until(f"document.readyState === 'complete' && {links}") == [
            f"{root}/{name}" for name in (*names.split(), "debug/vars", "metrics")
        ]
        assert await tab.value("getComputedStyle(document.querySelector('main .needs-script')).display") == "none"


async def many(server: ServerInstance) -> nats.NATS:
    client = await patient_client.connect(server.url)
    js = client.jetstream()
    for at in range(45):
        await js.add_stream(name=f"STREAM-{at:02d}", subjects=[f"s{at}.>"], storage=StorageType.MEMORY)
        await js.add_consumer(f"STREAM-{at:02d}", ConsumerConfig(durable_name=f"worker-{at:02d}"))
    for number in range(12):
        await js.publish("s7.a", b"x" * number)
    return client


SHOWN = "[...document.querySelectorAll('#%s tr')].map((row) => row.cells[0].firstChild.textContent)"


def press(heading: str, table: str = "streams") -> str:
    return (
        f"document.querySelector('#{table}').closest('table').querySelector('th[data-sort={heading}] button').click()"
    )


async def test_streams_are_sorted_searched_and_paged_by_the_server(tmp_path: Path, open_tab: Opened) -> None:
    async with ServerInstance(options(tmp_path)) as server, open_tab() as tab:
        client = await many(server)
        await tab.call("Page.navigate", url=f"http://127.0.0.1:{server.port_of('monitoring')}/")
        shown = await tab.until(SHOWN % "streams")
        assert (len(shown), shown[:2]) == (20, ["STREAM-07", "STREAM-00"])
        assert "1–20 of 45" in await tab.value("document.querySelector('#streams-pager').innerText")
        heading = "document.querySelector('#streams').closest('table').querySelector('th[data-sort=%s]').ariaSort"
        assert await tab.value(heading % "messages") == "descending"
        await tab.value(press("name"))
        await tab.until(f"({SHOWN % 'streams'})[0] === 'STREAM-00'")
        assert (await tab.value(heading % "name"), await tab.value(heading % "messages")) == ("ascending", "none")
        await tab.value(press("name"))
        await tab.until(f"({SHOWN % 'streams'})[0] === 'STREAM-44'")
        await tab.value("document.querySelector('#streams-pager button[title=\"Last page\"]').click()")
        await tab.until(f"({SHOWN % 'streams'}).at(-1) === 'STREAM-00'")
        assert len(await tab.value(SHOWN % "streams")) == 5
        assert "streams.offset=40" in await tab.value("location.hash")
        await tab.call("Page.reload")
        await tab.until(f"({SHOWN % 'streams'}).at(-1) === 'STREAM-00'")  # the address keeps it
        await tab.value("document.querySelector('#streams-search').focus()")
        await tab.call("Input.insertText", text="s31.")
        await tab.until(f"({SHOWN % 'streams'}).join() === 'STREAM-31'")
        assert await tab.value("document.querySelector('#streams-pager').hidden")
        await tab.call("Input.insertText", text="<b>")
        await tab.until("document.querySelector('#streams-none').innerText === 'No stream matches “s31.<b>”.'")
        assert tab.complaints() == []
        await client.close()


async def test_consumers_of_a_stream_are_one_press_away_and_the_keyboard_reaches_them(
    tmp_path: Path, open_tab: Opened
) -> None:
    async with ServerInstance(options(tmp_path)) as server, open_tab() as tab:
        client = await many(server)
        await tab.call("Page.navigate", url=f"http://127.0.0.1:{server.port_of('monitoring')}/")
        await tab.until(SHOWN % "consumers")
        assert (await tab.value(SHOWN % "consumers"))[0] == "worker-07"
        button = "document.querySelector('#streams tr:nth-child(2) td button')"
        assert await tab.value(f"{button}.ariaLabel") == "Show the 1 consumer of STREAM-00"
        await tab.value(f"{button}.focus()")
        for kind in ("rawKeyDown", "char", "keyUp"):
            await tab.call(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13
            )
        await tab.until(f"({SHOWN % 'consumers'}).join() === 'worker-00'")
        assert await tab.value("document.activeElement.id") == "consumers-stream"
        await tab.value("document.activeElement.click()")
        await tab.until(f"({SHOWN % 'consumers'}).length === 20")
        await client.close()


async def test_focus_stays_where_it_is_while_the_page_is_refreshed(tmp_path: Path, open_tab: Opened) -> None:
    async with ServerInstance(options(tmp_path)) as server, open_tab() as tab:
        client = await many(server)
        await tab.call("Page.navigate", url=f"http://127.0.0.1:{server.port_of('monitoring')}/")
        await tab.until(SHOWN % "streams")
        await tab.value("document.querySelector('#streams td button').focus()")
        await client.jetstream().publish("s7.a", b"one more")
        await tab.until("document.querySelector('#streams tr').cells[1].textContent === '13'")
        assert await tab.value("document.activeElement.closest('tbody').id") == "streams"
        await client.close()


async def test_problems_come_first_and_lead_to_what_has_them(tmp_path: Path, open_tab: Opened) -> None:
    async with ServerInstance(options(tmp_path)) as server, open_tab() as tab:
        client = await many(server)
        await tab.call("Page.navigate", url=f"http://127.0.0.1:{server.port_of('monitoring')}/")
        assert (await tab.until("document.querySelector('#health.ok')?.innerText")) == "healthy"
        assert (await tab.value("document.querySelector('#problems-none').innerText")).startswith("Nothing. ")
        server.engine.accounts["$G"].streams["STREAM-07"].consumers["worker-07"].created_ns -= 16 * 60 * 10**9
        await tab.until("document.querySelector('#health.warn')?.innerText === '1 warning'")
        server.engine._leave_offline(f"$G/{'BAD' * 20}", "made by a newer version")
        await tab.until("document.querySelector('#health.bad')?.innerText === 'unhealthy'")
        texts = await tab.value("[...document.querySelectorAll('#problems li')].map((one) => one.innerText)")
        assert [text.split("\n")[0] for text in texts] == ["Error", "Warning"]
        assert "newer version" in texts[0]
        assert "no client pulls" in texts[1]
        await tab.value("document.querySelectorAll('#problems li')[1].querySelector('button').click()")
        await tab.until(f"({SHOWN % 'consumers'}).join() === 'worker-07'")
        await tab.value("document.querySelector('#problems-kinds button').click()")
        await tab.until("document.querySelectorAll('#problems li').length === 1")
        assert await tab.value("document.querySelector('#problems-kinds button').ariaPressed") == "true"
        assert tab.complaints() == []
        await client.close()


async def test_a_reader_of_the_screen_finds_names_for_everything(tmp_path: Path, open_tab: Opened) -> None:
    async with ServerInstance(options(tmp_path)) as server, traffic(server), open_tab() as tab:
        await tab.call("Page.navigate", url=f"http://127.0.0.1:{server.port_of('monitoring')}/")
        await tab.until("document.querySelector('#health.ok') && document.querySelector('#busy td')")
        await tab.call("Accessibility.enable")
        tree = (await tab.call("Accessibility.getFullAXTree"))["nodes"]
        roles = {"button", "searchbox", "link", "table", "region", "columnheader", "navigation"}
        found = [
            (role, node.get("name", {}).get("value", ""))
            for node in tree
            if not node.get("ignored") and (role := node["role"]["value"]) in roles
        ]
        assert {role for role, _ in found} == roles
        assert [one for one in found if not one[1].strip()] == []
        ids = "[...document.querySelectorAll('[id]')].map((one) => one.id)"
        every = await tab.value(ids)
        assert len(every) == len(set(every))
