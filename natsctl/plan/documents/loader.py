"""Reads files, and those that they include, into one set: all faults of all files are told at once."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from natsctl.api.errors import UsageError
from natsctl.plan.asset import Place
from natsctl.plan.documents import interpolation, json_text, yaml_text
from natsctl.plan.documents.faults import MAX_FILES, MAX_INCLUDE_DEPTH, TextError
from natsctl.plan.documents.files import STDIN, FileId, files_at, identity, read_text
from natsctl.plan.documents.forms import read_form
from natsctl.plan.documents.found import Found
from natsctl.plan.documents.lined import Spot, Step, spelled
from natsctl.plan.wanted import Fault

_JSON: Final = re.compile(r'\s*(?:\{\s*["}]|\[\s*(?:[{\]]|$))')
"""The start of JSON texts that are not hand-written YAML."""


class Loader:
    """Loader that reads each file once, in the order in which it is named or included."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.found = Found()
        self._values = values
        self._seen: set[FileId] = set()

    def read(self, paths: Sequence[str]) -> None:
        """Read the documents of paths. Raises UsageError for one that does not exist."""
        for file in [file for path in paths for file in files_at(path)]:
            if (own := identity(file)) not in self._seen:
                self._file(file, (own,))

    def _file(self, file: str, chain: tuple[FileId, ...]) -> None:
        """Read a file; `chain` is the chain of includes that led to it, itself last."""
        self._seen.add(chain[-1])
        name = "stdin" if file == STDIN else file
        self.found.files.append(name)
        if len(self._seen) > MAX_FILES:
            raise UsageError(f"{name}: more than {MAX_FILES:,} files")
        for spot in self._documents(file, name):
            for include in read_form(spot, self.found):
                self._include(include, file, chain)

    def read_text(self, text: str, name: str) -> None:
        """Read a text without a file; its includes are relative to the working folder."""
        self.found.files.append(name)
        for spot in self._documents(STDIN, name, text):
            for include in read_form(spot, self.found):
                self._include(include, STDIN, ())

    def _documents(self, file: str, name: str, text: str | None = None) -> Iterator[Spot]:
        """Yield the documents of a file, one by one; unreadable ones are faults."""

        def report(line: int, path: Sequence[Step], reason: str) -> None:
            self.found.faults.append(Fault(Place(name, line, "$" + "".join(spelled(step) for step in path)), reason))

        try:
            text = read_text(file) if text is None else text
            expand = self._expand if interpolation.has_references(text) else None
            reader = json_text if is_json(file, text) else yaml_text
            for line, value in reader.documents(text, report, expand):
                if value is not None:
                    yield Spot(name, value, getattr(value, "line", line))
        except TextError as fault:
            report(fault.line, (), fault.reason)

    def _expand(self, text: str) -> str:
        return interpolation.expanded(text, self._values)

    def _include(self, spot: Spot, file: str, chain: tuple[FileId, ...]) -> None:
        """Read the files of an include, relative to the file that includes it."""
        if len(chain) > MAX_INCLUDE_DEPTH:
            self.found.fault(spot, f"more than {MAX_INCLUDE_DEPTH} files include each other")
            return
        base = Path() if file == STDIN else Path(file).parent
        wanted = str(spot.value)
        plain = str(base / wanted)
        # Only the included path may be a pattern, not the folder to which it is relative.
        pattern = str(Path(glob.escape(str(base))) / wanted)
        try:
            named = Path(plain).is_file()
            files = files_at(plain if Path(plain).exists() else pattern)
        except (UsageError, ValueError, OSError) as failure:
            self.found.fault(spot, str(failure))
            return
        for one in files:
            if (own := identity(one)) not in self._seen:
                self._file(one, (*chain, own))
            elif named and own in chain:
                # A folder or a pattern may well contain the file that includes it.
                self.found.fault(spot, f"{wanted} includes this file")


def is_json(file: str, text: str) -> bool:
    """Return whether a text is to be read as JSON: by the file's name, else by how it begins."""
    if file.endswith(".json"):
        return True
    if file.endswith((".yaml", ".yml")):
        return False
    return _JSON.match(text) is not None
