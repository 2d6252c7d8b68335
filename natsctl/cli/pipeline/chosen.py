"""The pipeline that a command is about: a folder, a specification, a name known here, or the folder around."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, unquote

import typer

from natsctl.cli.suggest import did_you_mean

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.spark.pipeline.project import Project

Pipeline = Annotated[
    str,
    typer.Argument(
        metavar="PIPELINE", help="folder or name of the pipeline [the one in this folder]", show_default=False
    ),
]


def known_folder() -> Path:
    """Return the file with the folders of pipelines by name, in XDG_STATE_HOME (~/.local/state)."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "natsctl" / "pipelines"


def known_pipelines() -> dict[str, Path]:
    """The folders of all pipelines that were made or run here, by name; those that are gone are left out."""
    try:
        files = sorted(known_folder().iterdir())
    except OSError:
        return {}
    found = {unquote(file.name): Path(file.read_text(encoding="utf-8")) for file in files if file.is_file()}
    return {name: folder for name, folder in found.items() if folder.is_dir()}


def note_pipeline(name: str, folder: Path) -> None:
    """Have a pipeline known by its name from now on."""
    known_folder().mkdir(parents=True, exist_ok=True)
    (known_folder() / quote(name, safe="")).write_text(str(folder.absolute()), encoding="utf-8")


def chosen_project(pipeline: str) -> Project:
    """The project that is meant. Raises PipelineNotFoundError, PipelineError."""
    from natsctl.spark.pipeline.project import PipelineNotFoundError, find_project

    if not pipeline:
        return find_project()
    if Path(pipeline).exists():
        return find_project(Path(pipeline))
    known = known_pipelines()
    if pipeline in known:
        return find_project(known[pipeline])
    hint = did_you_mean(pipeline, known) or "natsctl pipeline ls shows those that were made or run here"
    raise PipelineNotFoundError(f"there is no pipeline {pipeline!r}", hint=hint)


def take_context(session: Session, project: Project) -> None:
    """Have the project's context name the server, unless a flag or the environment does."""
    options = session.options
    named = options.server or options.context or os.environ.get("NATS_URL") or os.environ.get("NATS_CONTEXT")
    if project.own.context and not named:
        options.context = project.own.context
