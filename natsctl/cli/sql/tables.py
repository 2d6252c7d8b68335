"""The tables that queries are about: those of a server, or those of backups."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.api.exit_codes import ExitCode

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.spark.sql.catalogue import Catalogue


class NoStreamBackupError(NatsctlError):
    """None of the backups is one of a stream."""

    exit_code = ExitCode.NOT_FOUND


class Tables(Protocol):
    """Where tables are: which there are, and the options of the data source for one."""

    on_server: bool
    """Whether a server has them."""

    @property
    def catalogue(self) -> Catalogue:
        """The tables by name."""

    def options(self, base: Mapping[str, str], stream: str) -> dict[str, str]:
        """The options of the data source that read a stream, given those of the server."""

    def state(self, stream: str) -> dict[str, Any]:
        """How many messages a stream has, from where to where, as STREAM.INFO tells it."""


class ServerTables:
    """Streams of the server that the command's session is of."""

    on_server = True

    def __init__(self, session: Session) -> None:
        from natsctl.spark.sql.catalogue import Catalogue

        self._session = session
        self.catalogue = Catalogue(session.run(lambda manager: manager.stream_names()))

    def options(self, base: Mapping[str, str], stream: str) -> dict[str, str]:
        """The server's options, and the stream; messages that expire while they are read are no failure."""
        return {**base, "stream": stream, "failOnDataLoss": "false"}

    def state(self, stream: str) -> dict[str, Any]:
        """What the server knows of it."""
        return dict(self._session.run(lambda manager: manager.stream_info(stream)).raw.get("state") or {})


class BackupTables:
    """Streams of backups at or below a path."""

    on_server = False

    def __init__(self, path: Path) -> None:
        from natsctl.spark.sql.catalogue import Catalogue

        self._paths = backups_by_stream(path)
        self.catalogue = Catalogue(self._paths)

    def check(self, stream: str) -> None:
        """Raises NoStreamBackupError where there is none of that stream."""
        from natsctl.cli.suggest import did_you_mean

        if stream not in self._paths:
            names = ", ".join(self._paths)
            raise NoStreamBackupError(
                f"there is no backup of Stream {stream}", hint=did_you_mean(stream, self._paths) or f"there is {names}"
            )

    def options(self, base: Mapping[str, str], stream: str) -> dict[str, str]:
        """The path of the stream's backup alone: no server is asked."""
        return {"backup": str(self._paths[stream].resolve())}  # Spark in background runs in another folder

    def state(self, stream: str) -> dict[str, Any]:
        """What the backup's description says."""
        from natsctl.client.backup.opened import open_backup

        with open_backup(self._paths[stream]) as opened:
            return dict(opened.state)


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
