"""Terraform's resources as wanted assets: what the provider would have created, or what is unknown, by line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import UsageError
from natsctl.desired.assets import AssetKey, DocumentError, DocumentSet
from natsctl.desired.terraform import read_terraform

SECOND = 1_000_000_000
CASES = sorted(Path(__file__).with_name("cases").iterdir())
"""Files of HCL, and states of terraform."""
EXPECTED: dict[str, Any] = json.loads(Path(__file__).with_name("expected.json").read_text())
"""The assets with their configurations, and the notes; or the faults."""
Read = Callable[..., DocumentSet]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def reading(text: str, environ: dict[str, str] | None = None, **given: Any) -> DocumentSet:
        (tmp_path / "main.tf").write_text(text)
        return read_terraform([str(tmp_path / "main.tf")], environ or {}, **given)

    return reading


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_a_file_is_read_as_expected(path: Path) -> None:
    try:
        found = read_terraform([str(path)], {"TF_VAR_size": "2", "TF_VAR_env": "live"})
    except DocumentError as failure:
        told: dict[str, Any] = {"faults": failure.faults}
    else:
        told = {
            "assets": {key.name: one.config for key, one in found.wanted.items()},
            "protected": [key.name for key, one in found.wanted.items() if one.protect],
            "notes": found.notes,
        }
    for name in told.keys() & {"faults", "notes"}:
        told[name] = [str(text).replace(f"{path.parent}/", "") for text in told[name]]
    assert told == EXPECTED[path.name]


def stream(body: str, name: str = "S") -> str:
    return f'resource "jetstream_stream" "{name}" {{\n  name = "{name}"\n  subjects = ["{name}.>"]\n  {body}\n}}\n'


def config_of(documents: DocumentSet, *key: str) -> dict[str, Any]:
    return documents.wanted[AssetKey(*key)].config


def test_variables_come_from_files_and_the_command_line_wins(read: Read, tmp_path: Path) -> None:
    text = 'variable "a" {}\nvariable "b" {}\nvariable "l" { type = list(string) }\n' + stream(
        'description = "${var.a} ${var.b} ${join("-", var.l)}"'
    )
    (tmp_path / "terraform.tfvars").write_text('a = "file"\nb = "file"\n')
    (tmp_path / "more.tfvars").write_text('b = "more"\n')
    made = read(text, {"TF_VAR_a": "env"}, variables=['l=["x", "y"]'], variable_files=[str(tmp_path / "more.tfvars")])
    assert config_of(made, "S")["description"] == "file more x-y"
    with pytest.raises(UsageError, match="no such variable"):
        read(text, variables=["c=1"])


def test_folders_are_modules_of_their_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "names.tf").write_text(f'locals {{ name = "{name}" }}\n')
        (tmp_path / name / "streams.tf").write_text(
            'resource "jetstream_stream" "S" {\n name = local.name\n subjects = [local.name]\n}\n'
        )
    made = read_terraform([str(tmp_path / "a"), str(tmp_path / "b")], {})
    assert list(made.wanted) == [AssetKey("a"), AssetKey("b")]
