"""What keys do: command lines of natsctl, after a question where something is lost."""

from textual.events import MouseScrollDown
from textual.widgets import Input

from natsctl.cli.browse.actions import CommandRunner, needed_consent
from natsctl.cli.browse.dialogs import ConfirmScreen, OutputScreen
from natsctl.cli.browse.row_list import RowList
from natsctl.cli.framework.globals import GlobalOptions
from tests.cli.browse.conftest import Browse, Browsing


async def until(browsing: Browsing, kind: type | None = None, text: str = "") -> None:
    """Wait for a screen, or for a text on it."""
    for _ in range(600):
        await browsing.pilot.pause(0.02)
        if (kind is None or isinstance(browsing.app.screen, kind)) and text in browsing.text:
            return
    raise AssertionError(f"{kind} with {text!r} did not come: {browsing.text}")


async def test_a_stream_is_deleted_once_its_name_is_typed(browse: Browse, shop: str) -> None:
    async with browse(shop) as browsing:
        names = browsing.app.catalog.streams
        await browsing.press("d")
        await until(browsing, ConfirmScreen, "messages: 120")
        assert "consumers: 2" in browsing.text
        browsing.looks_like("delete-80x24-dark")
        await browsing.press("y", "enter")  # a letter of the name
        assert isinstance(browsing.app.screen, ConfirmScreen)
        await browsing.press("escape")
        assert names.names == ["ORDERS", "PAYMENTS"]
        await browsing.press("d")
        await until(browsing, ConfirmScreen)
        browsing.app.screen.query_one(Input).value = "ORDERS"
        await browsing.press("enter")
        await until(browsing, text="was removed")
        await browsing.settle()
        assert names.names == ["PAYMENTS"]


async def test_a_consumer_and_a_message_are_deleted_after_a_yes(browse: Browse, shop: str) -> None:
    async with browse(shop) as browsing:
        await browsing.press("enter", "left_square_bracket", "d")
        await until(browsing, ConfirmScreen, "ORDERS 120")
        await browsing.press("y")
        await until(browsing, text="Removed message 120")
        await browsing.settle()
        assert browsing.app._pages is not None
        assert browsing.app._pages.messages[-1].seq == 119
        await browsing.press("3", "d")
        await until(browsing, ConfirmScreen, "consumer rm ORDERS BILLING")
        await browsing.press("n")
        assert browsing.app.catalog.consumers.names == ["BILLING", "NEW"]


async def test_a_dead_letter_is_replayed_or_discarded(browse: Browse, failed: str) -> None:
    async with browse(failed) as browsing:
        await browsing.press("r")
        assert "only dead letters are replayed" in browsing.text
        await browsing.press("7", "right_square_bracket")
        letters, manager = browsing.app.catalog.letters, browsing.app.manager
        await browsing.press("enter", "r")  # on the list of its message
        await until(browsing, ConfirmScreen, "deadletter replay ORDERS 2 --consumer NEW")
        await browsing.press("n")
        assert letters.names == ["ORDERS > NEW 2", "ORDERS > NEW 1"]
        await browsing.press("r")
        await until(browsing, ConfirmScreen)
        await browsing.press("y")
        await until(browsing, text="replayed")
        await browsing.settle()
        assert letters.names == ["ORDERS > NEW 1"]
        assert (await manager.stream_info("ORDERS")).value.state.messages == 121
        await browsing.press("7", "d")
        await until(browsing, ConfirmScreen, "deadletter discard ORDERS 1 --consumer NEW")
        await browsing.press("y")
        await until(browsing, text="no dead letters")
        assert (await manager.stream_info("ORDERS")).value.state.messages == 121


async def test_the_mouse_selects_and_opens(browse: Browse, shop: str) -> None:
    async with browse(shop) as browsing:
        app, pilot = browsing.app, browsing.pilot
        await pilot.click("#names", offset=(3, 1))
        assert app.selection.name == "PAYMENTS"
        await pilot.click("#heads-below", offset=(3, 1))
        await browsing.settle()
        assert (app.selection.section, app.selection.name) == (app.catalog.kv, "KV_CONFIG")
        await pilot.click("#tabs", offset=(12, 0))
        await browsing.settle()
        assert app.selection.tab.title == "Keys"
        await pilot.click("#rows", offset=(3, 1), times=2)
        await browsing.settle()
        assert app.selection.tab.title == "History"
        assert "5432" in browsing.text
        assert "db1.example.net" not in browsing.text
        await pilot.click("#heads-above", offset=(3, 1))
        await browsing.settle()
        await pilot.click("#names", offset=(3, 0), times=2)
        assert app.selection.name == "ORDERS"
        assert app.query_one("#page").has_focus
        await browsing.press("left_square_bracket", "home")
        rows = app.query_one("#rows", RowList)
        assert rows.shown.start == 0
        await pilot._post_mouse_events([MouseScrollDown], "#rows", (3, 3), button=0)
        await browsing.tick()
        assert rows.shown.start > 0  # the wheel moves the rows, not the cursor
        assert rows.cursor == 0


async def test_read_only_refuses_every_change(browse: Browse, shop: str) -> None:
    async with browse(shop, read_only=True) as browsing:
        for key in ("d", "e", "p"):
            await browsing.press(key)
            assert "read-only: nothing is changed" in browsing.text
            browsing.app.note("")
        await browsing.press("colon")
        browsing.app.query_one("#line", Input).value = "stream purge ORDERS --force"
        await browsing.press("enter")
        await until(browsing, OutputScreen, "done")
        assert "dry run: nothing was sent" in browsing.text
        await browsing.press("escape")
        await browsing.tick()
        assert browsing.app.catalog.streams.known["ORDERS"].info.state.messages == 120


async def test_any_command_line_runs_and_asks_if_it_loses_something(browse: Browse, shop: str) -> None:
    async with browse(shop) as browsing:
        await browsing.press("colon")
        browsing.app.query_one("#line", Input).value = "stream ls --names"
        await browsing.press("enter")
        await until(browsing, OutputScreen, "done")
        assert "PAYMENTS" in browsing.text
        await browsing.press("escape", "colon")
        browsing.app.query_one("#line", Input).value = "natsctl consumer rm ORDERS NEW"
        await browsing.press("enter")
        await until(browsing, OutputScreen, "exit status 2")
        await browsing.press("escape")
        await until(browsing, ConfirmScreen, "Consumer NEW")
        await browsing.press("y")
        await until(browsing, text="was removed")
        await browsing.press("3", "2")
        await browsing.settle()
        assert browsing.app.catalog.consumers.names == ["BILLING"]


async def test_command_lines_are_completed(browse: Browse, shop: str) -> None:
    async with browse(shop) as browsing:
        line = browsing.app.query_one("#line", Input)
        await browsing.press("colon")
        for typed, completed in (
            ("str", "stream "),
            ("stream inf", "stream info "),
            ("stream info PAY", "stream info PAYMENTS "),
            ("stream ls --nam", "stream ls --names "),
        ):
            line.value = typed
            line.cursor_position = len(typed)
            await browsing.pilot.press("tab")
            await until(browsing, text=completed.strip())
            assert line.value == completed
        line.value = "kv "
        await until(browsing, text="put")
        await browsing.press("escape")
        assert browsing.app.query_one("#names").has_focus


async def test_names_are_filtered_copied_and_explained(browse: Browse, shop: str) -> None:
    async with browse(shop) as browsing:
        await browsing.press("slash")
        await browsing.type("pay")
        await browsing.press("enter")
        assert browsing.app.selection.names == ["PAYMENTS"]
        await browsing.press("y")
        assert browsing.app.clipboard == "PAYMENTS"
        await browsing.press("escape")
        assert browsing.app.selection.names == ["ORDERS", "PAYMENTS"]
        await browsing.press("home", "3", "x")
        assert "Consumer ORDERS > BILLING:" in browsing.text
        assert "Checked and fine" in browsing.text
        await browsing.press("escape", "4", "enter", "right_square_bracket", "enter")
        assert "$KV.CONFIG.db.host" in browsing.text
        await browsing.press("p")
        assert browsing.app.query_one("#line", Input).value.startswith("publish")


def test_secrets_go_through_the_environment() -> None:
    options = GlobalOptions(server="nats://a:b@h", user="u", password="pw", js_domain="hub", timeout=2.5, trace=True)
    runner = CommandRunner(options, read_only=True)
    line = runner.arguments(["stream", "ls"])[2:]
    assert line == ["natsctl", "--timeout", "2.5s", "--domain", "hub", "--trace", "--dry-run", "stream", "ls"]
    environment = runner.environment()
    assert environment["NATS_URL"] == "nats://a:b@h"
    assert (environment["NATS_USER"], environment["NATS_PASSWORD"]) == ("u", "pw")


def test_the_flag_of_consent_is_read_from_the_refusal() -> None:
    refusal = "natsctl: error: cannot ask whether to delete Stream A: there is no terminal\n  --force (-f) does it …"
    assert needed_consent(refusal) == ("delete Stream A", "--force")
    assert needed_consent("natsctl: error: unknown flag --x") is None
