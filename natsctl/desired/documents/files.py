"""Files of documents: found, read and written."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from msgspec import field

from natsctl.api.errors import UsageError, file_errors
from natsctl.api.locations import MAX_FILE_BYTES, MAX_FILES, TextError
from natsctl.api.model import Model
from natsctl.client.atomic_file import atomic_write, is_special

STDIN: Final = "-"
SUFFIXES: Final = (".yaml", ".yml", ".json")
"""The suffixes that are read in a folder; a named file is read with any name."""


FileId = tuple[int, int]
"""Device and number of a file."""


OUTSIDE_HINT: Final = "give --include-outside if the documents are trusted to name any file"


def root_of(path: str) -> str:
    """Return the folder, without links, that a path given by the user opens to includes: itself, or a file's folder."""
    named = Path(path)
    return os.path.realpath(named if named.is_dir() else "." if path == STDIN else named.parent)


def is_inside(path: str, root: str) -> bool:
    """Return whether a path leads, through all links, to a place below a folder without links."""
    return f"{os.path.realpath(path)}/".startswith(root.rstrip("/") + "/")


def files_at(path: str, root: str = "/") -> list[str]:
    """Return the files of a path, sorted: the file itself, all files below a folder, or the matches of a glob.

    Raises UsageError for a path that does not exist, and for a link in a folder that leads out of `root`.
    """
    if path == STDIN or Path(path).is_file():
        return [path]
    if Path(path).is_dir():
        return list(_files_below(path, root))
    if glob.has_magic(path):
        there = glob.glob(path, recursive=True)  # noqa: PTH207  # Path.glob takes no absolute patterns
        matching = [found for found in sorted(there) if Path(found).is_file()]
        if matching:
            return matching
        raise UsageError(f"{path}: no file matches")
    if Path(path).exists():
        return [path]
    reason = "a broken link" if Path(path).is_symlink() else "no such file or folder"
    raise UsageError(f"{path}: {reason}")


def _files_below(folder: str, root: str) -> Iterator[str]:
    """Yield the documents of a folder, sorted, then of its folders; each folder once, despite links."""
    seen: set[tuple[int, int]] = set()
    count = 0

    def report(failure: OSError) -> None:
        raise UsageError(f"{failure.filename}: {failure.strerror}") from failure

    for here, folders, files in os.walk(folder, followlinks=True, onerror=report):
        status = os.stat(here)  # noqa: PTH116  # the pair names the folder, whatever led there
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        if not is_inside(here, root):
            raise UsageError(f"{here}: links to a folder outside {root}", hint=OUTSIDE_HINT)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if name.endswith(SUFFIXES) and not name.startswith("."):
                path = os.path.join(here, name)  # noqa: PTH118  # a Path costs more, for thousands of files
                if os.path.islink(path) and not is_inside(path, root):  # noqa: PTH114
                    raise UsageError(f"{path}: links to a file outside {root}", hint=OUTSIDE_HINT)
                count += 1
                if count > MAX_FILES:
                    raise UsageError(f"{folder}: more than {MAX_FILES:,} documents")
                yield path if here != "." else name


def read_text(path: str) -> str:
    """Return the text of a file or of stdin. Raises TextError if it is binary, too long or unreadable."""
    try:
        if path == STDIN:
            raw = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with open(path, "rb", opener=_open_without_waiting) as opened:  # a Path costs as much
                # A pipe has no length; a read of the maximum would allocate that much for a file.
                length = os.fstat(opened.fileno()).st_size
                raw = opened.read(min(length or MAX_FILE_BYTES, MAX_FILE_BYTES) + 1)
    except OSError as failure:
        raise TextError(0, failure.strerror or str(failure)) from failure
    if len(raw) > MAX_FILE_BYTES:
        raise TextError(0, f"larger than {MAX_FILE_BYTES // 2**20} MiB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        raise TextError(raw.count(b"\n", 0, failure.start) + 1, f"not UTF-8 text (byte {failure.start})") from failure


_HANDED_OVER: Final = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""Prefix of the path of a pipe that the shell hands over (`-f <(command)`)."""


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file. A named pipe is refused because opening it would wait for a writer."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if stat.S_ISFIFO(os.fstat(handle).st_mode):
        if not path.startswith(_HANDED_OVER):
            os.close(handle)
            raise OSError(errno.ESPIPE, "a named pipe, not a file")
        os.set_blocking(handle, True)
    return handle


def identity(path: str) -> FileId:
    """Return an identity that paths to the same file share; a missing file has one of its own."""
    if path == STDIN:
        return (-1, -1)
    try:
        status = os.stat(path)  # noqa: PTH116  # the quickest, for thousands of files
    except OSError:
        return (-1, hash(path))
    return (status.st_dev, status.st_ino)


MAX_STEM: Final = 200
"""Letters of a file's name before its suffix; file systems accept 255 bytes."""
_RESERVED: Final = frozenset(
    ("con", "prn", "aux", "nul", *(f"com{digit}" for digit in range(10)), *(f"lpt{digit}" for digit in range(10)))
)
"""Names that Windows reserves for devices."""


class FilesWritten(Model, kw_only=True, omit_defaults=False):
    """The result of writing files: written paths, paths already up to date, and obsolete ones."""

    written: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    """Files in the folder for streams that no longer exist; they stay."""


def is_folder(path: str) -> bool:
    """Return whether an output path means a folder: an existing one, or a name without the suffix of a document."""
    if is_special(Path(path)):
        return False
    return Path(path).is_dir() or path.endswith(("/", os.sep)) or not path.endswith(SUFFIXES)


def file_names(streams: Iterable[str], suffix: str) -> dict[str, str]:
    """Return a file name for each stream: safe on every file system, unique even where case does not count."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for stream in streams:
        stem, escaped = _stem(stream), 0
        while stem.lower() in taken or stem.lower() in _RESERVED:
            escaped += 1
            stem = _stem(stream, escaped)
        taken.add(stem.lower())
        names[stream] = stem + suffix
    return names


def _stem(stream: str, escaped: int = 0) -> str:
    """Return the name without suffix: letters, digits, - and _, the rest as %XX, as are the first `escaped` letters."""
    first = "".join(f"%{byte:02X}" for byte in stream[:escaped].encode())
    stem = first + quote(stream[escaped:], safe="").replace(".", "%2E").replace("~", "%7E")
    if len(stem) > MAX_STEM or escaped > len(stream):
        # Cut escapes whole: the stem need not be decoded, the hash makes it unique.
        stem = f"{stem[: MAX_STEM - 20].rpartition('%')[0] or stem[: MAX_STEM - 20]}~"
        stem += hashlib.sha256(stream.encode()).hexdigest()[:16]
    return stem


def stream_of(file: Path) -> str:
    return unquote(file.stem)


def write_files(texts: Mapping[Path, str], *, force: bool) -> FilesWritten:
    """Write files after checking all of them.

    An existing file with other content is replaced only with `force`. Raises UsageError, StorageError.
    """
    same = {path for path, text in texts.items() if not is_special(path) and _says(path, text)}
    taken = [path for path in texts if path not in same and path.exists() and not is_special(path)]
    if taken and not force:
        names = ", ".join(str(path) for path in taken[:5]) + (f" and {len(taken) - 5} more" if len(taken) > 5 else "")
        raise UsageError(f"{names}: already exists with other content", hint="give --force to replace it")
    for path, text in texts.items():
        if path not in same:
            _write(path, text)
    return FilesWritten(
        written=[str(path) for path in texts if path not in same],
        unchanged=[str(path) for path in texts if path in same],
    )


def other_documents(folder: Path, texts: Iterable[Path]) -> list[Path]:
    mine = {path.name for path in texts}
    return sorted(path for path in folder.glob("*") if path.name.endswith(SUFFIXES) and path.name not in mine)


def _says(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() == text.encode()
    except OSError:
        return False


def _write(path: Path, text: str) -> None:
    """Write a file by a rename: it never exists in part."""
    with file_errors(f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(text.encode())


Config = Mapping[str, Any]

_WIDTH: Final = 2**31 - 1
"""Lines are never folded: a changed word is a changed line."""
_MISREAD: Final = re.compile(
    r"[-+]?\.?[0-9][0-9_.:]*(e[-+]?[0-9_]*)?"  # numbers, in YAML 1.1 also sexagesimal ones
    r"|[-+]?0[xob][0-9a-f_]*|[-+]?\.(inf|nan)"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*"
    r"|y|n|yes|no|on|off|true|false|null|~|=|<<",
    re.IGNORECASE | re.DOTALL,
)
"""Unquoted texts that some reader takes for a number, a time, a truth value or null."""


def yaml_text(documents: Sequence[Config], header: Sequence[str] = (), *, ascii_only: bool = False) -> str:
    """Return the documents as YAML, `---` between them, below comments; `ascii_only` escapes all other letters."""
    comments = "".join(f"# {' '.join(line.split())}\n" for line in header)
    texts = [_escaped("".join(_sections(document, ascii_only))) for document in documents]
    return comments + "---\n".join(text or "{}\n" for text in texts)


def json_text(documents: Config | Sequence[Config]) -> str:
    """Return a document, or an array of them, as JSON, two spaces a level."""
    return _escaped(json.dumps(documents, indent=2, ensure_ascii=False)) + "\n"


_INVISIBLE: Final = re.compile("[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")
"""Characters that reorder or hide text from a reviewer: direction marks, separators, blanks of no width, tags."""


def _escaped(text: str) -> str:
    """Return JSON, or YAML that has such characters only in double quotes, with their escape sequences."""
    return _INVISIBLE.sub(
        lambda found: f"\\u{ord(found[0]):04x}" if found[0] < "\U00010000" else json.dumps(found[0])[1:-1], text
    )


def _sections(document: Config, ascii_only: bool) -> Iterator[str]:
    """Return the text of a document, with an empty line between its assets."""
    for key, value in document.items():
        if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            yield f"{key}:\n"
            yield "\n".join(_dumped([item], ascii_only) for item in value)
        else:
            yield _dumped({key: value}, ascii_only)


def _dumped(value: Any, ascii_only: bool) -> str:
    import yaml

    text: str = yaml.dump(
        value, Dumper=_dumper(), sort_keys=False, allow_unicode=not ascii_only, width=_WIDTH, default_flow_style=False
    )
    return text


@cache
def _dumper() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):  # type: ignore[misc]  # one of two classes, chosen at run time
        """A dumper that puts ambiguous texts in quotes, and texts of several lines in blocks."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    Dumper.add_representer(str, _represent_text)
    return Dumper


def _represent_text(dumper: Any, text: str) -> Any:
    # Empty lines at the end of a block would end the document as well (libyaml writes `...` after them).
    lines = "\n" in text.rstrip("\n") and not text.endswith("\n\n")
    style = '"' if _INVISIBLE.search(text) else "|" if lines else "'" if _MISREAD.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)
