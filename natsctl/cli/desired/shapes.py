"""What the commands of desired state print with -j."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import field

from natsctl.api.model import Model
from natsctl.plan.apply.result import Result, Summary
from natsctl.plan.saved import SavedPlan
from natsctl.plan.wanted import DocumentSet, Fault


class Applied(Model, kw_only=True, omit_defaults=False):
    """A plan, what became of each of its changes, and how many went which way.

    `ended` says why not all was begun: "" where all was, "stopped", "interrupted" or "lost". `notes` tell of what was
    done before: interrupted replacements that were brought to their end.
    """

    plan: SavedPlan
    results: list[Result]
    summary: Summary
    ended: str
    notes: list[str] = field(default_factory=list)


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
    """What a file holds, and what is wrong in it."""

    file: str
    assets: list[CheckedAsset]
    faults: list[FoundFault]


class Validated(Model, kw_only=True, omit_defaults=False):
    """What documents hold, file by file, and whether a server would take all of it; `notes` tell what was passed over
    and what is likely not meant.
    """

    valid: bool
    owner: str
    files: list[CheckedFile]
    notes: list[str]

    @classmethod
    def of(cls, documents: DocumentSet, faults: Sequence[Fault]) -> Validated:
        """The verdict about what was read."""
        files = {name: CheckedFile(file=name, assets=[], faults=[]) for name in documents.files}
        for key, one in documents.wanted.items():
            asset = CheckedAsset(kind=one.kind, stream=key.stream, consumer=key.consumer, line=one.place.line)
            files[one.place.file].assets.append(asset)
        for fault in faults:
            told = FoundFault(line=fault.place.line, path=fault.place.path, reason=fault.reason)
            files[fault.place.file].faults.append(told)
        return cls(valid=not faults, owner=documents.owner, files=list(files.values()), notes=list(documents.notes))
