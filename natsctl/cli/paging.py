"""Names that are printed page by page as they come: whoever reads has the first before the last is asked for."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING

from natsctl.cli import output

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.client.manager import Manager


def emit_name_pages(session: Session, pages: Callable[[Manager], AsyncIterator[Iterable[str]]]) -> int:
    """Print each page's names on stdout when it is there, one on a line; how many names there were.

    Raises what the pages raise, with those before printed, and BrokenPipeError where nobody reads any more.
    """

    async def show(manager: Manager) -> int:
        number = 0
        async for page in pages(manager):
            names = list(page)
            output.emit_names(names)
            sys.stdout.flush()
            number += len(names)
        return number

    return session.run(show)
