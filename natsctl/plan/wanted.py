"""What a set of documents asks for, whatever they were written in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from natsctl.api.errors import UsageError
from natsctl.plan.asset import AssetKey, Kind, Place

DEFAULT_OWNER = "default"
"""The owner of documents that do not name one."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One asset as a document describes it.

    `config` has the wire's keys and values (nanoseconds, bytes, RFC 3339), those that the document gives and no others;
    of a bucket it is the configuration of its stream, whole. `kind` is the word that the document used.
    A field that the document does not mention is left as it is where the asset exists.
    """

    key: AssetKey
    kind: Kind
    config: dict[str, Any]
    place: Place
    protect: bool = False
    """Neither removed nor replaced until a document lifts the protection."""
    create_only: bool = False
    """Created where it is absent, and left unchanged where it exists: no difference counts."""
    nulls: frozenset[str] = frozenset()
    """Fields that the document sets to null, `metadata.KEY` included: they get their default."""
    at_creation: frozenset[str] = frozenset()
    """Fields, `metadata.KEY` included, that apply at creation only: an existing asset keeps its own values."""

    @property
    def mentioned(self) -> frozenset[str]:
        """The fields that the document mentions, those at null included."""
        return (self.nulls | self.config.keys()) - self.at_creation


@dataclass(frozen=True, slots=True)
class DocumentSet:
    """A set of documents: each asset once, in the order of the documents.

    `owner` labels the assets that are created from it, so that a later set of the same owner knows what it may remove.
    `notes` report what was skipped.
    """

    wanted: dict[AssetKey, Wanted]
    owner: str = DEFAULT_OWNER
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_owned: bool = True
    """Whether an owner was named: nothing is pruned without one."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake in a document."""

    place: Place
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


class DocumentError(UsageError):
    """All mistakes of a set of documents, in the order of files and lines."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = list(faults)
