"""What `stream add`, `copy` and `edit` share: how a stream is created, and how it is shown afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from natsctl.api.err_codes import ErrCode
from natsctl.api.errors import ApiFailure, NatsctlError, UsageError
from natsctl.cli import output
from natsctl.cli.flags import check_subjects
from natsctl.cli.render.text import safe
from natsctl.cli.taken import warn_unless_taken

if TYPE_CHECKING:
    from natsctl.cli.flags import Config
    from natsctl.cli.session import Session
    from natsctl.client.answer import Answer
    from natsctl.client.manager import Manager


PAIRED = (
    ("subject_transform", "--transform-source", "--transform-destination"),
    ("republish", "--republish-source", "--republish-destination"),
)
"""Objects that mean nothing without their `dest`, and the flags of both ends."""


def check_config(wanted: Config) -> None:
    """Raise UsageError for what no server takes, by the names of the flags."""
    if wanted.get("mirror") and wanted.get("subjects"):
        raise UsageError("a mirror takes no subjects of its own: --mirror and --subjects exclude each other")
    if wanted.get("mirror") and wanted.get("sources"):
        raise UsageError("a mirror takes from one stream only: --mirror and --source exclude each other")
    check_subjects(wanted.get("subjects"))
    for field, source, destination in PAIRED:
        mapping = wanted.get(field)
        if mapping and not mapping.get("dest"):
            raise UsageError(f"{source} needs {destination}")


def create_stream(session: Session, wanted: Config, *, if_not_exists: bool, json: bool) -> None:
    """Create the stream and show it; one that exists is shown as it is where that was asked for."""
    name = str(wanted["name"])
    check_config(wanted)
    if if_not_exists and (live := existing(session, name)) is not None:
        show_info(live, json, f"Stream {name} exists already")
        return
    answer = _create(session, wanted)
    made = "was created" if answer.raw.get("did_create") else "exists already with this configuration"
    show_info(answer, json, f"Stream {name} {made}")
    warn_unless_taken(wanted, answer, json)


def existing(session: Session, name: str) -> Answer[Any] | None:
    """The stream of that name, or None."""
    try:
        return session.run(lambda manager: manager.stream_info(name))
    except ApiFailure as failure:
        if failure.err_code != ErrCode.STREAM_NOT_FOUND:
            raise
        return None


def _create(session: Session, wanted: Config) -> Answer[Any]:
    """Create the stream. Raises ApiFailure, with what a person can do about it."""
    try:
        return session.run(lambda manager: manager.stream_create(wanted))
    except ApiFailure as failure:
        if failure.err_code == ErrCode.STREAM_NAME_EXIST:
            failure.hint = failure.hint or (
                f"natsctl stream edit {wanted['name']} changes a stream that exists, --if-not-exists leaves it alone"
            )
        elif failure.err_code == ErrCode.STREAM_SUBJECT_OVERLAP:
            failure.hint = failure.hint or _taken_by(session, wanted)
        raise


def _taken_by(session: Session, wanted: Config) -> str:
    """Which streams store the subjects already, and where to look."""
    subjects = wanted.get("subjects") or [wanted["name"]]

    async def owners(manager: Manager) -> list[str]:
        return [name for subject in subjects for name in await manager.stream_names(subject=subject)]

    try:
        found = dict.fromkeys(session.run(owners))
    except NatsctlError:
        found = {}
    return f"stored already by {', '.join(found)}" if found else "natsctl stream ls shows which streams there are"


def show_info(answer: Answer[Any], json: bool, done: str = "") -> None:
    """Show the stream that an answer describes, after telling what was done."""
    if json:
        output.emit_json(answer.raw)
        return
    if done:
        output.note(safe(done, block=True))
    from natsctl.cli.render.streams import render_stream
    from natsctl.cli.screen import show_page

    show_page(render_stream(answer.value))
