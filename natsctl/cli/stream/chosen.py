"""Several streams on one command line: names, and patterns of names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import NatsctlError
from natsctl.api.exit_codes import ExitCode
from natsctl.cli.names import is_internal, is_pattern, matching, pick_stream

if TYPE_CHECKING:
    from natsctl.cli.session import Session

StreamNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="[STREAM]...", help="the streams; * and ? match any characters", show_default=False),
]


class NoneMatch(NatsctlError):
    """No stream has a name of that pattern."""

    exit_code = ExitCode.NOT_FOUND


def has_pattern(words: Sequence[str] | None) -> bool:
    """Whether one of the words stands for names that the person has not written."""
    return any(is_pattern(word) for word in words or ())


def chosen_streams(session: Session, words: Sequence[str] | None, *, missing_ok: bool = False) -> list[str]:
    """The streams that are meant, each once: what was written, what patterns match, else what the person picks.

    A pattern matches streams of buckets only where it begins as their names do. Raises NoneMatch.
    """
    if not words:
        return [pick_stream(session, None)]
    names = session.run(lambda manager: manager.stream_names()) if has_pattern(words) else []
    found: list[str] = []
    for word in words:
        if not is_pattern(word):
            found.append(word)
            continue
        matched = [name for name in matching(names, word) if not is_internal(name) or is_internal(word)]
        if not matched and not missing_ok:
            raise NoneMatch(f"no Stream matches {word}", hint="natsctl str ls -a shows those there are")
        found += sorted(matched)
    return list(dict.fromkeys(found))
