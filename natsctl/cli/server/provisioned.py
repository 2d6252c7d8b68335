"""A server that applies documents before it listens: `natsctl server run --apply`."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from natsctl.api.errors import UsageError

if TYPE_CHECKING:
    from natsctl.desired.assets import DocumentSet
    from natsctl.server.process.flags import StartDocuments
    from natsctl.server.process.provision import Apply, InProcessAddress

NAMED_FILES = 3
"""Changes that the log names; further ones are counted."""
_DONE = {"create": "Created", "update": "Updated", "replace": "Replaced", "delete": "Deleted"}


def serve(words: Sequence[str]) -> int:
    if sys.platform == "win32":
        from natsctl.cli.framework.session import server_missing

        raise server_missing()
    from natsctl.server.process import import_msgspec

    import_msgspec()
    from natsctl.server.process.process import main

    return main(words, provisioner)


def provisioner(documents: StartDocuments) -> Apply:
    """Read documents, and return the function that applies them. Raises UsageError with all their mistakes."""
    from natsctl.desired.documents import load_documents

    wanted = load_documents(documents.paths, os.environ)
    if documents.prune and not wanted.wanted:
        files = ", ".join(documents.paths)
        raise UsageError(f"--apply_prune: no stream, consumer or bucket is described in {files}: all would be removed")

    def carry(address: InProcessAddress, report: Callable[[str], None]) -> Awaitable[None]:
        return _carry(wanted, documents.prune, address, report)

    return carry


async def _carry(wanted: DocumentSet, prune: bool, address: InProcessAddress, report: Callable[[str], None]) -> None:
    from natsctl.client.dial import connect
    from natsctl.client.manager import Manager
    from natsctl.client.servers import Target, TargetKind
    from natsctl.client.settings import Settings
    from natsctl.desired.apply.apply import outcome_line, provide
    from natsctl.desired.apply.results import Result, Status

    def say(result: Result) -> None:
        if result.status is Status.DONE:
            report(f"{_DONE[result.action]} {result.key}")

    for note in wanted.notes:
        report(note)
    target = Target(TargetKind.NAMED, (address.url,), "--apply", Settings(token=address.token))
    async with await connect(target, name="natsctl server run --apply") as connection:
        outcome = await provide(Manager(connection), wanted, prune=prune, on_result=say)
    files = ", ".join(wanted.files) if len(wanted.files) <= NAMED_FILES else f"{len(wanted.files)} files"
    report(f"Applied {files} for {wanted.owner}: {outcome_line(outcome)}")
