"""Where an export goes: one file, or a folder; and what may be replaced there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from natsctl.api.errors import UsageError
from natsctl.spark.export.formats import GZIP, Format, format_of, is_gzip, is_url, named_format

OWN: Final = "_natsctl"
"""The folder of what an export that goes on must remember; readers pass over names that begin so."""
PARTITIONS: Final = ("date", "subject")
_OF_EXPORTS = re.compile(r"\.?part-.*|_SUCCESS|\._SUCCESS\.crc|_spark_metadata|_natsctl|_delta_log|[^=]+=.*|\..*\.crc")


@dataclass(frozen=True, slots=True)
class Target:
    """Where and as what messages are written."""

    path: str
    format: Format
    partition_by: str = ""
    incremental: bool = False
    force: bool = False

    @property
    def is_file(self) -> bool:
        """Whether it becomes one file: a path that ends as files of the format do, and nothing that needs a folder."""
        if self.partition_by or self.incremental or self.format.is_folder or is_url(self.path):
            return False
        return named_format(self.path) is self.format and not self.path.endswith("/")

    @property
    def is_gzip(self) -> bool:
        """Whether what is written is compressed by gzip."""
        return is_gzip(self.path)

    @property
    def local(self) -> Path:
        """The path on this machine."""
        return Path(self.path)

    def check(self) -> None:
        """Raises UsageError where it cannot be written to, or holds what must not be lost."""
        if self.partition_by and self.partition_by not in PARTITIONS:
            raise UsageError(f"--partition-by: expected date or subject, not {self.partition_by!r}")
        if self.is_gzip and not self.format.is_text:
            raise UsageError(f"{self.path}: {self.format.name} is compressed already", hint=f"leave out {GZIP}")
        if not is_url(self.path):
            self._check_local()

    def _check_local(self) -> None:
        path = self.local
        if self.is_file and path.is_dir():
            raise UsageError(f"{path} is a folder", hint="name a file, or a folder without the ending of one")
        if not path.parent.is_dir():
            raise UsageError(f"{path.parent} is no folder")
        if not self.is_file and path.exists() and not path.is_dir():
            raise UsageError(f"{path} is a file", hint="name a folder")
        if self._is_there():
            if not self.force:
                raise UsageError(f"{path} exists", hint="name another path, or give --force to replace it")
            if others := sorted(foreign(path)):
                raise UsageError(f"{path} is no export: it holds {others[0]}", hint="name another path")

    def _is_there(self) -> bool:
        path = self.local
        if not path.is_dir():
            return path.exists()
        begun = self.incremental and not self.force and (path / OWN).is_dir()
        return not begun and next(path.iterdir(), None) is not None


def target_of(path: str, format: str, partition_by: str, *, incremental: bool, force: bool) -> Target:
    """What the command line says of where an export goes. Raises UsageError."""
    target = Target(path, format_of(path, format), partition_by, incremental, force)
    target.check()
    return target


def foreign(path: Path) -> Iterator[str]:
    """The names in a folder that no export made."""
    if path.is_dir():
        yield from (one.name for one in path.iterdir() if not _OF_EXPORTS.fullmatch(one.name))
