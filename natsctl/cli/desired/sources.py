"""Documents that a command reads, and their validation without a server: `natsctl validate`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from natsctl.api.errors import ExitCode, UsageError
from natsctl.api.model import Model
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.render.text import safe
from natsctl.desired.assets import DocumentSet, Fault
from natsctl.desired.documents import load_documents, read_documents


class CheckedAsset(Model, kw_only=True, omit_defaults=False):
    """An asset that a document describes; `consumer` is empty for streams and buckets."""

    kind: str
    stream: str
    consumer: str
    line: int


class FoundFault(Model, kw_only=True, omit_defaults=False):
    """One mistake; line 0 is the file as a whole."""

    line: int
    path: str
    reason: str


class CheckedFile(Model, kw_only=True, omit_defaults=False):
    """The assets in a file, and its mistakes."""

    file: str
    assets: list[CheckedAsset]
    faults: list[FoundFault]


class Validated(Model, kw_only=True, omit_defaults=False):
    """The contents of documents, file by file, and whether a server would accept all of it; `notes` list skipped parts
    and probable mistakes.
    """

    valid: bool
    owner: str
    files: list[CheckedFile]
    notes: list[str]

    @classmethod
    def of(cls, documents: DocumentSet, faults: Sequence[Fault]) -> Validated:
        files = {name: CheckedFile(file=name, assets=[], faults=[]) for name in documents.files}
        for key, one in documents.wanted.items():
            asset = CheckedAsset(kind=one.kind, stream=key.stream, consumer=key.consumer, line=one.place.line)
            files[one.place.file].assets.append(asset)
        for fault in faults:
            found = FoundFault(line=fault.place.line, path=fault.place.path, reason=fault.reason)
            files[fault.place.file].faults.append(found)
        return cls(valid=not faults, owner=documents.owner, files=list(files.values()), notes=list(documents.notes))


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


AllowEmpty = Annotated[bool, Option("--allow-empty", help="accept documents that describe nothing")]


class DocumentFlags(NamedTuple):
    """Flags that name the documents of a command."""

    paths: Annotated[
        list[str] | None,
        Argument(metavar="PATH", help="documents: files, folders, globs; - for stdin"),
    ] = None
    files: Annotated[
        list[str] | None,
        Option("--file", "-f", metavar="PATH", help="documents, as PATH; may be repeated"),
    ] = None
    owner: Annotated[
        str,
        Option("--owner", metavar="NAME", help="owner of the assets [owner: of the documents]"),
    ] = ""
    variables: Annotated[
        list[str] | None,
        Option("--var", metavar="NAME=VALUE", help="a value for ${NAME}; wins over the environment"),
    ] = None
    outside: Annotated[
        bool,
        Option("--include-outside", help="allow includes and links to files outside the folder of the named document"),
    ] = False

    @property
    def all(self) -> list[str]:
        """All paths, however they were given. Raises UsageError without any."""
        named = [*(self.files or ()), *(self.paths or ())]
        if not named:
            raise UsageError("documents are needed: give -f PATH", hint="a file, a folder, or - for stdin")
        return named

    @property
    def values(self) -> dict[str, str]:
        found = {}
        for text in self.variables or ():
            name, equals, value = text.partition("=")
            if not equals or not _NAME.fullmatch(name):
                raise UsageError(f"--var {text}: expected NAME=VALUE", hint="a name is letters, digits and _")
            found[name] = value
        return found

    def load(self, *, allow_empty: bool = True) -> DocumentSet:
        """Return the documents; skipped parts are reported on stderr. Raises DocumentError, UsageError.

        Without `allow_empty` an empty set is an error: probably a file that was not written.
        """
        documents = load_documents(self.all, os.environ, owner=self.owner, variables=self.values, outside=self.outside)
        show_notes(documents)
        if not allow_empty:
            check_not_empty(documents)
        return documents


def check_not_empty(documents: DocumentSet) -> None:
    if not documents.wanted:
        count = len(documents.files)
        where = (
            f" in {documents.files[0] if count == 1 else f'{count:,} files'}" if count else ": no document was found"
        )
        raise UsageError(
            f"no stream, consumer or bucket is described{where}",
            hint="are the files complete? --allow-empty accepts documents that describe nothing",
        )


def show_notes(documents: DocumentSet) -> None:
    """Report skipped parts and probable mistakes on stderr."""
    for text in documents.notes:
        output.note(safe(f"note: {text}"))


def validate(
    named: DocumentFlags,
    json: Json = False,
) -> int:
    """Check documents without a server: list their contents, and everything that a server would refuse.

    Ends with 2 where anything is wrong. They are not compared with a server: natsctl plan does that.
    """
    from natsctl.cli.render.plans import render_validated

    documents, faults = read_documents(
        named.all, os.environ, owner=named.owner, variables=named.values, outside=named.outside
    )
    verdict = Validated.of(documents, faults)
    if json:
        output.emit_json(verdict)
    else:
        show_notes(documents)
        output.emit(render_validated(verdict, output.width()))
    return ExitCode.DONE if verdict.valid else ExitCode.USAGE
