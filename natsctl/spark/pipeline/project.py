"""A pipeline's project: a folder with Spark's specification, and beside it what natsctl adds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from natsctl.spark.paths import local_path, spark_path
from natsctl.spark.pipeline.faults import Fault, NoPipeline, PipelineFaults
from natsctl.spark.pipeline.own_settings import OwnSettings, load_own_settings
from natsctl.spark.pipeline.yaml_lines import Keys, line_of, load_with_lines

SPECIFICATIONS: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
_TEXTS: Final = ("name", "storage", "catalog", "database", "schema")
_KEYS: Final = (*_TEXTS, "configuration", "libraries")


@dataclass(frozen=True)
class Project:
    """A pipeline as its folder describes it; `storage` is a URL, of this machine where it is written as a path."""

    folder: Path
    specification: Path
    name: str
    storage: str
    catalog: str | None
    database: str | None
    configuration: Mapping[str, str]
    libraries: tuple[str, ...]
    own: OwnSettings

    @property
    def state_folder(self) -> Path:
        """Where a run keeps what others ask of it."""
        return self.folder / ".natsctl"

    @property
    def tables(self) -> Path:
        """Where tables are, unless Spark's settings say otherwise."""
        return (self.folder / self.own.tables).absolute()

    @property
    def checkpoints(self) -> Path | None:
        """The folder of the checkpoints; None where it is not on this machine."""
        found = local_path(self.storage)
        return found / "_checkpoints" if found else None

    def definitions(self) -> list[Path]:
        """The files that define the pipeline, in the order of their names, each once."""
        found: dict[Path, None] = {}
        for include in self.libraries:
            pattern = f"{include}/*" if include.endswith("/**") else include
            for path in sorted(self.folder.glob(pattern)):
                if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("."):
                    found[path] = None
        return list(found)


def find_project(where: Path | None = None) -> Project:
    """The project of that folder or specification, or without one of this folder or one above it.

    Raises NoPipeline, PipelineFaults.
    """
    if where is not None and where.is_file():
        return load_project(where)
    for folder in [where] if where is not None else [Path.cwd(), *Path.cwd().parents]:
        for name in SPECIFICATIONS:
            if (folder / name).is_file():
                return load_project(folder / name)
    place = f"in {where}" if where is not None else "in this folder or above it"
    raise NoPipeline(f"no {SPECIFICATIONS[0]} {place}", hint="natsctl pipeline init NAME makes a project")


def load_project(specification: Path) -> Project:
    """The project of a specification. Raises PipelineFaults with every fault of both files, OSError."""
    folder = specification.absolute().parent
    said, lines = load_with_lines(specification)
    faults = list(_faults(said, lines, specification.name))
    own = OwnSettings()
    try:
        own = load_own_settings(folder)
    except PipelineFaults as failure:
        faults += failure.faults
    if faults:
        raise PipelineFaults(faults)
    storage = str(said["storage"])
    if "://" not in storage:
        storage = spark_path((folder / storage.removeprefix("file:")).resolve())
    return Project(
        folder=folder,
        specification=specification.absolute(),
        name=str(said["name"]),
        storage=storage,
        catalog=said.get("catalog"),
        database=said.get("database") or said.get("schema"),
        configuration={str(key): str(value) for key, value in (said.get("configuration") or {}).items()},
        libraries=tuple(entry["glob"]["include"] for entry in said.get("libraries") or ()),
        own=own,
    )


def _faults(said: Any, lines: dict[Keys, int], file: str) -> Iterator[Fault]:
    """What Spark would refuse of a specification, with lines."""
    if not isinstance(said, dict):
        yield Fault(file, 1, "expected keys such as name and storage")
        return
    for key in said:
        if key not in _KEYS:
            hint = "what natsctl adds stands in natsctl.yml" if key in ("streams", "sinks", "interval") else ""
            yield Fault(file, line_of(lines, (str(key),)), f"unknown key {key!r}", hint)
    for key in ("name", "storage"):
        if not said.get(key):
            yield Fault(file, 1, f"{key} is missing")
    for key in _TEXTS:
        if said.get(key) is not None and not isinstance(said[key], str):
            yield Fault(file, line_of(lines, (key,)), f"{key}: expected a text, not {said[key]!r}")
    configuration = said.get("configuration")
    for key, value in configuration.items() if isinstance(configuration, dict) else ():
        if not isinstance(value, str):
            yield Fault(file, line_of(lines, ("configuration", str(key))), f"{key}: expected a text, in quotes")
    if configuration is not None and not isinstance(configuration, dict):
        yield Fault(file, line_of(lines, ("configuration",)), "configuration: expected settings of Spark by name")
    yield from _libraries(said.get("libraries"), line_of(lines, ("libraries",)), file)


def _libraries(said: Any, line: int, file: str) -> Iterator[Fault]:
    entries = said if isinstance(said, list) else [] if said is None else [said]
    for entry in entries:
        include = entry.get("glob", {}).get("include") if isinstance(entry, dict) else None
        if not isinstance(include, str):
            yield Fault(file, line, "libraries: expected entries such as - glob: {include: transformations/**}")
        elif any(char in include.removesuffix("/**") for char in "*?["):
            yield Fault(file, line, f"libraries: {include!r} is neither a file nor a folder with /** behind it")
