"""`natsctl browse`: look around in streams, consumers, buckets and messages on a full screen."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated

from natsctl.api.errors import UsageError
from natsctl.cli.framework.parameters import Option
from natsctl.cli.framework.session import Session

if TYPE_CHECKING:
    from natsctl.client.manager import Manager

THEMES = ("dark", "light")
_LIGHT_BACKGROUNDS = frozenset(("7", "15"))
"""Numbers of light colours in COLORFGBG."""


def read_theme(text: str) -> str:
    if text not in THEMES:
        raise ValueError(f"expected dark or light, not {text!r}")
    return text


def browse(
    session: Session,
    read_only: Annotated[bool, Option("--read-only", help="refuse every change")] = False,
    theme: Annotated[
        str, Option("--theme", metavar="dark|light", help="colours [as the terminal says, else dark]", read=read_theme)
    ] = "",
) -> None:
    """Look around in streams, consumers, buckets, messages and servers on a full screen.

    ? shows the keys. Every change is one of natsctl's own command lines, and what loses something asks first. Without
    colours if NO_COLOR is set.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("browse needs a terminal", hint="natsctl stream ls and natsctl audit analyze work without one")
    session.lasting = True
    session.run(lambda manager: show_browser(session, manager, read_only, theme or background()))


def background() -> str:
    """Return the theme for the terminal's background; many terminals set COLORFGBG."""
    return "light" if os.environ.get("COLORFGBG", "").rpartition(";")[2] in _LIGHT_BACKGROUNDS else "dark"


async def show_browser(session: Session, manager: Manager, read_only: bool, theme: str) -> None:
    import asyncio

    from natsctl.cli.browse.actions import CommandRunner, leading_options
    from natsctl.cli.browse.app import BrowseApp

    options = session.options
    read_only = read_only or options.dry_run
    url = manager.connection.url if manager.connection.target.origin == "embedded" else ""
    runner = CommandRunner(options, url=url, read_only=read_only)
    app = BrowseApp(manager, runner, read_only=read_only, theme=theme, leading=leading_options(options))
    manager.connection.received.report = app.note
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):  # Windows
        for number in (signal.SIGINT, signal.SIGTERM):
            # An exception in the middle of its work would end the process before the terminal is restored.
            loop.add_signal_handler(number, app.exit, None, 128 + number)
    await app.run_async()
    if app.return_code:
        raise SystemExit(app.return_code)
