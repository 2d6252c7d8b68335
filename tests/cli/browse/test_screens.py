"""Screens of the browser, as they were looked at and found good: docs/images/browse."""

import pytest

from tests.cli.browse.conftest import Browse

pytestmark = pytest.mark.ours("a screen shows what the server answers, which other tests compare")


@pytest.mark.parametrize("theme", ["dark", "light"])
async def test_streams_and_their_pages_on_a_small_screen(browse: Browse, shop: str, theme: str) -> None:
    async with browse(shop, theme=theme) as browsing:
        browsing.looks_like(f"streams-80x24-{theme}")
        await browsing.press("enter", "right_square_bracket", "right_square_bracket")
        browsing.looks_like(f"consumers-80x24-{theme}")
        await browsing.press("right_square_bracket", "home", "enter")
        browsing.looks_like(f"message-80x24-{theme}")


@pytest.mark.parametrize("theme", ["dark", "light"])
async def test_a_wide_screen_has_a_message_below_its_list(browse: Browse, shop: str, theme: str) -> None:
    async with browse(shop, (160, 50), theme=theme) as browsing:
        await browsing.press("enter", "left_square_bracket", "home")
        browsing.looks_like(f"messages-160x50-{theme}")


async def test_without_colours_the_cursor_is_reversed(
    browse: Browse, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with browse(shop) as browsing:
        browsing.looks_like("streams-80x24-no-color")
        await browsing.press("enter", "left_square_bracket")
        browsing.looks_like("messages-80x24-no-color")


async def test_the_keys_are_on_one_screen(browse: Browse, shop: str) -> None:
    async with browse(shop) as browsing:
        await browsing.press("question_mark")
        browsing.looks_like("keys-80x24-dark")
        await browsing.press("escape")
        assert "▾ 2 Streams" in browsing.text
