"""What a store's folder must hold before anything in it is read, and which format it is in."""

from __future__ import annotations

from natsctl.store.disk import Disk
from natsctl.store.errors import StoreDamaged, StoreFormat
from natsctl.store.file_commit import replace_file

FORMAT_TEXT = b'{"format":1,"min_reader":1}\n'


def open_layout(disk: Disk) -> None:
    """Make what is missing from a new folder. Raises StoreFormat, StoreDamaged (a store stood here), OSError."""
    if disk.exists("FORMAT"):
        file = disk.open_read("FORMAT")
        try:
            found = file.pread(4096, 0)
        finally:
            file.close()
        if found != FORMAT_TEXT:
            raise StoreFormat(f"FORMAT says {found[:200]!r}; this version reads {FORMAT_TEXT!r}")
    elif disk.exists("WITNESS") or (disk.exists("streams") and disk.listdir("streams")):
        raise StoreFormat("FORMAT is missing from a folder that holds a store")
    if not disk.exists("streams"):
        if disk.exists("WITNESS"):
            raise StoreDamaged("streams/ is missing from a folder that holds a store")
        disk.mkdir("streams")
    if not disk.exists("FORMAT"):
        replace_file(disk, "FORMAT", FORMAT_TEXT)
    disk.fsync_dir("")
