"""Conversion of files, folders and states of Terraform into a set of assets, or into all of their faults."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from natsctl.api.errors import UsageError
from natsctl.desired.assets import AssetKey, DesiredAsset, DocumentError, DocumentSet, Fault, Location
from natsctl.desired.terraform.configuration import Instance, Module, given_variables, passed_over
from natsctl.desired.terraform.hcl import Block, parse
from natsctl.desired.terraform.resources import is_state, state_instances, wanted_of

MAX_FILE_BYTES: Final = 32 * 1024 * 1024
_STATE_SUFFIXES: Final = (".json", ".tfstate")


def read_terraform(
    paths: Sequence[str],
    environ: Mapping[str, str],
    *,
    variables: Sequence[str] = (),
    variable_files: Sequence[str] = (),
) -> DocumentSet:
    """Return the assets of `.tf` files, of folders of them, and of states as JSON; each folder is a module of its own.

    `variables` are `NAME=VALUE`, `variable_files` are `.tfvars`. Raises DocumentError with all that cannot be
    converted, UsageError for what cannot be read.
    """
    faults: list[Fault] = []
    notes: list[str] = []
    instances: list[Instance] = []
    files: list[str] = []
    for found in _groups(paths):
        files += map(str, found)
        if found[0].name.endswith(_STATE_SUFFIXES):
            made, told = _from_state(found[0])
        else:
            made, told = _from_module(found, environ, variables, variable_files, faults)
        instances += made
        notes += told
    wanted = _collected(instances, faults, notes)
    if faults:
        raise DocumentError(sorted(faults, key=lambda one: (files.index(one.place.file), one.place.line)))
    return DocumentSet(wanted, files=tuple(files), notes=tuple(notes))


def _groups(paths: Sequence[str]) -> list[list[Path]]:
    """Return the files of each module: a folder's together, those named one by one together, each state alone."""
    groups: list[list[Path]] = []
    named: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(path.glob("*.tf"))
            if not inside:
                raise UsageError(f"{path}: no .tf file in this folder", hint="each folder of a configuration is named")
            groups.append(inside)
        elif path.name.endswith(_STATE_SUFFIXES):
            groups.append([path])
        else:
            named.append(path)
    return [*([named] if named else []), *groups]


def _from_module(
    files: Sequence[Path],
    environ: Mapping[str, str],
    variables: Sequence[str],
    variable_files: Sequence[str],
    faults: list[Fault],
) -> tuple[list[Instance], list[str]]:
    blocks: list[Block] = []
    for file in files:
        whole, wrong = parse(str(file), read_bytes(file))
        blocks += whole.blocks
        faults += wrong
        faults += [Fault(one.place, f"{one.name} = … stands outside of any block") for one in whole.attributes]
    if faults:
        return [], []  # follow-up faults of an unreadable file would mislead
    given = given_variables(blocks, files[0].parent, environ, variables, variable_files, faults)
    module = Module(blocks, given, faults)
    return list(module.instances()), passed_over(module)


def _from_state(file: Path) -> tuple[list[Instance], list[str]]:
    try:
        document = json.loads(read_bytes(file))
    except ValueError as error:
        raise UsageError(f"{file}: not JSON: {error}") from error
    if not is_state(document):
        raise UsageError(f"{file}: no state of Terraform", hint="`terraform show -json` writes one")
    return list(state_instances(document, str(file))), []


def read_bytes(file: Path) -> bytes:
    """Return the content of a file. Raises UsageError."""
    try:
        with file.open("rb") as opened:
            raw = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
    if len(raw) > MAX_FILE_BYTES:
        raise UsageError(f"{file}: larger than {MAX_FILE_BYTES // 2**20} MiB")
    return raw


def _collected(instances: Iterable[Instance], faults: list[Fault], notes: list[str]) -> dict[AssetKey, DesiredAsset]:
    wanted: dict[AssetKey, DesiredAsset] = {}
    first: dict[AssetKey, Location] = {}
    for instance in instances:
        one = wanted_of(instance, faults, notes)
        if one is None:
            continue
        if one.key in wanted:
            faults.append(Fault(one.place, f"{one.key} stands twice, first at {first[one.key]}"))
            continue
        wanted[one.key], first[one.key] = one, one.place
    return wanted
