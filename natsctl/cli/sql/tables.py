"""The tables that queries are about: those of a server, or those of backups."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from natsctl.api.errors import UsageError

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.spark.sql.catalogue import Catalogue


class Tables(Protocol):
    """Where tables are: which there are, the options of the data source for one, and what a stream has by subject."""

    on_server: bool
    """Whether a server has them."""

    @property
    def catalogue(self) -> Catalogue:
        """The tables by name."""

    def options(self, base: Mapping[str, str], stream: str) -> dict[str, str]:
        """The options of the data source that read a stream, given those of the server."""

    def subjects(self, stream: str) -> dict[str, int]:
        """How many messages each subject of a stream has."""


class ServerTables:
    """Streams of the server that the command's session is of."""

    on_server = True

    def __init__(self, session: Session) -> None:
        from natsctl.spark.sql.catalogue import Catalogue

        self._session = session
        self.catalogue = Catalogue(session.run(lambda manager: manager.stream_names()))

    def options(self, base: Mapping[str, str], stream: str) -> dict[str, str]:
        """The server's options, and the stream."""
        return {**base, "stream": stream}

    def subjects(self, stream: str) -> dict[str, int]:
        """What the server counts."""
        from natsctl.spark.sql.counting import subject_counts

        return self._session.run(lambda manager: subject_counts(manager, stream))


class BackupTables:
    """Streams of backups at or below a path."""

    on_server = False

    def __init__(self, path: Path) -> None:
        from natsctl.spark.sql.catalogue import Catalogue

        self._paths = backups_by_stream(path)
        self.catalogue = Catalogue(self._paths)

    def options(self, base: Mapping[str, str], stream: str) -> dict[str, str]:
        """The path of the stream's backup alone: no server is asked."""
        return {"backup": str(self._paths[stream])}

    def subjects(self, stream: str) -> dict[str, int]:
        """What reading the whole backup counts."""
        from natsctl.client.backup.inspect import inspect
        from natsctl.client.backup.opened import open_backup

        with open_backup(self._paths[stream]) as backup:
            return {one.subject: one.messages for one in inspect(backup).subjects}


def backups_by_stream(path: Path) -> dict[str, Path]:
    """The backups of streams at or below a path. Raises UsageError where there is none, or two of one stream."""
    from natsctl.client.backup.found import find_backups

    found: dict[str, Path] = {}
    for one in find_backups(path):
        if one.error or not one.archive or not one.stream:
            continue
        if one.stream in found:
            raise UsageError(
                f"{path} has two backups of Stream {one.stream}", hint=f"name one: {found[one.stream]} or {one.path}"
            )
        found[one.stream] = Path(one.path)
    if not found:
        raise UsageError(f"{path} holds no backup with messages", hint="natsctl backup ls shows what is there")
    return found
