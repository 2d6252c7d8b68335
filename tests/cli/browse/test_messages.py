"""Messages in the browser: pages in both directions, filters, forms, new ones."""

import json
import re

from textual.widgets import Input

from natsctl.cli.browse.message_pages import MessagePages, MessageQuery
from natsctl.cli.browse.row_list import RowList
from tests.cli.browse.conftest import Browse, Browsing
from tests.support.servers import managing


def shown(browsing: Browsing) -> list[int]:
    pages = browsing.app._pages
    assert pages is not None
    return [message.seq for message in pages.messages]


async def test_pages_come_in_both_directions(browse: Browse, shop: str) -> None:
    async with browse(shop) as browsing:
        await browsing.press("enter", "left_square_bracket")
        assert shown(browsing) == [*range(71, 121)]  # the last page, the cursor on the last message
        rows = browsing.app.query_one("#rows", RowList)
        assert rows.cursor == 49
        await browsing.press(*["pageup"] * 4, "up")
        assert shown(browsing) == [*range(21, 121)]
        await browsing.press("home")
        assert shown(browsing) == [*range(1, 51)]
        await browsing.press(*["pagedown"] * 4, "down")
        assert shown(browsing) == [*range(1, 101)]
        await browsing.press("G")
        assert shown(browsing)[-1] == 120
        await browsing.press("number_sign")
        await browsing.type("60")
        await browsing.press("enter")
        assert shown(browsing)[0] == 60


async def test_a_filter_has_the_words_of_search(browse: Browse, shop: str) -> None:
    async with browse(shop) as browsing:
        await browsing.press("enter", "left_square_bracket", "slash")
        browsing.app.query_one("#line", Input).value = "--subject ORDERS.new --header Trace:t-7"
        await browsing.press("enter")
        assert shown(browsing) == [7]
        assert "/--subject ORDERS.new" in browsing.text
        await browsing.press("slash")
        browsing.app.query_one("#line", Input).value = "--expression 'json.id > 88'"
        await browsing.press("enter")
        assert shown(browsing) == [89, 90]
        await browsing.press("slash")
        browsing.app.query_one("#line", Input).value = "--subject ORDERS.lost"
        await browsing.press("enter")
        assert "no message passes the filter" in browsing.text
        await browsing.press("slash")
        browsing.app.query_one("#line", Input).value = "--subject"
        await browsing.press("enter")
        assert "requires an argument" in browsing.text  # and the filter stays
        assert "ORDERS.lost" in browsing.text


async def test_a_body_is_shown_in_three_forms(browse: Browse, shop: str) -> None:
    async with browse(shop, (100, 30)) as browsing:
        await browsing.press("enter", "left_square_bracket", "home", "enter")
        assert "Trace: t-1" in browsing.text
        assert re.search(r"customer \{2\}", browsing.text)
        await browsing.press("v")
        assert re.search(r"000000 +7b226964", browsing.text.replace(" ", "  ")) or "00000" in browsing.text
        await browsing.press("v")
        assert '{"id": 1, "customer"' in browsing.text
        await browsing.press("escape", "G", "enter")
        assert "plain text" in browsing.text


async def test_new_messages_are_followed(browse: Browse, shop: str) -> None:
    async with browse(shop) as browsing:
        await browsing.press("enter", "f")
        assert "following" in browsing.text
        await browsing.app.manager.connection.publish("ORDERS.new", b"another")
        await browsing.app.manager.connection.flush()
        await browsing.tick()
        assert shown(browsing)[-1] == 121
        await browsing.press("up")
        assert "following" not in browsing.text


async def test_pages_are_the_same_with_and_without_direct_gets(shop: str) -> None:
    """Backwards too, through gaps and with filters on the server and here."""
    async with managing(shop) as manager:
        for seq in (5, 6, 7, 40, 119, 120):
            await manager.message_delete("ORDERS", seq)
        left = [seq for seq in range(1, 119) if seq not in (5, 6, 7, 40)]
        for direct in (True, False):
            config = (await manager.stream_info("ORDERS")).raw["config"]
            await manager.stream_update({**config, "allow_direct": direct})
            for text, expected in (
                ("", left),
                ("--subject ORDERS.paid", [seq for seq in left if seq > 90]),
                ("--subject ORDERS.paid --subject ORDERS.new", left),
                ("--seq 3-50 --exclude-header Nope", [seq for seq in left if 3 <= seq <= 50]),
                ("'\"id\": .?7,'", [seq for seq in left if seq <= 90 and seq % 10 == 7]),
            ):
                for place in ("newest", "oldest"):
                    pages = MessagePages(manager, "ORDERS", MessageQuery.parse(text))
                    await getattr(pages, place)()
                    while not (pages.at_start if place == "newest" else pages.at_end):
                        await (pages.older if place == "newest" else pages.newer)(20)
                    assert [message.seq for message in pages.messages] == expected, (direct, text, place)
        assert json.loads(pages.messages[0].payload)["id"] == 17
