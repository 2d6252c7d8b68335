"""Streams as lists, reports and searches show them: those of a name or subject, and those that did not answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from natsctl.cli import output
from natsctl.cli.names import is_internal, is_match
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.api.stream import StreamInfo
    from natsctl.cli.session import Session
    from natsctl.client.answer import Answer, Listing

Subject = Annotated[
    str, typer.Option("--subject", metavar="SUBJECT", help="streams that store this subject", show_default=False)
]
Patterns = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]...", help="names; * and ? match any characters", show_default=False),
]


MoreColumns = Annotated[
    bool, typer.Option("--wide", help="more columns, for a wide terminal; --columns selects them", show_default=False)
]


class Streams(NamedTuple):
    """The streams to show; `absent` says why others could not be, by name; `hidden` counts those left out."""

    answers: list[Answer[StreamInfo]]
    absent: dict[str, str]
    hidden: int


def is_meant(name: str, patterns: Sequence[str] | None, all_streams: bool) -> bool:
    """Whether a stream is to be shown: it has one of the names; those of buckets only where they were asked for."""
    if patterns:
        return any(is_match(name, pattern) for pattern in patterns)
    return all_streams or not is_internal(name)


def list_streams(
    session: Session, *, subject: str = "", patterns: Sequence[str] | None = None, all_streams: bool = False
) -> Streams:
    """The streams that are meant, with what the server said of those that it could not reach."""
    return meant_streams(session.run(lambda manager: manager.stream_list(subject=subject)), patterns, all_streams)


def meant_streams(found: Listing[Answer[StreamInfo]], patterns: Sequence[str] | None, all_streams: bool) -> Streams:
    """Those of a list, or of one page of it, that are meant."""
    kept = [one for one in found if is_meant(one.value.config.name, patterns, all_streams)]
    absent = {name: why for name, why in _absent(found.raw).items() if is_meant(name, patterns, all_streams)}
    return Streams(kept, absent, len(found) - len(kept))


def _absent(raw: dict[str, Any]) -> dict[str, str]:
    said: dict[str, str] = dict.fromkeys(raw.get("missing") or (), "no answer")
    offline = raw.get("offline") or {}
    if isinstance(offline, dict):
        return said | {name: f"offline: {why}" for name, why in offline.items()}
    return said | dict.fromkeys(offline, "offline")


def nothing_found(streams: Streams, subject: str, patterns: Sequence[str] | None) -> str:
    """What a list says that is empty."""
    if patterns:
        return f"No Streams match {safe(' '.join(patterns))}"
    none = f"No Streams store {safe(subject)}" if subject else "No Streams defined"
    return none + (", pass -a to include system streams" if streams.hidden else "")


def tell_absent(absent: Collection[str]) -> None:
    """Warn on stderr of the streams that could not be shown in full."""
    if absent:
        output.note(f"warning: inaccessible streams: {', '.join(safe(name) for name in absent)}")
