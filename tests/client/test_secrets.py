"""Secrets that other programs keep: `op://` asks op."""

from __future__ import annotations

from pathlib import Path

import pytest

from natsctl.api.errors import UsageError
from natsctl.client.settings import resolve_either, resolve_text


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that is all of PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def _program(tools: Path, name: str, text: str) -> None:
    (tools / name).write_text(f"#!/bin/sh\n{text}\n")
    (tools / name).chmod(0o755)


def test_op_is_asked_for_the_secret(tools: Path) -> None:
    _program(tools, "op", '[ "$1 $2" = "read op://vault/item/field" ] && echo s3cret')
    assert resolve_text("op://vault/item/field", "password") == "s3cret"
    with pytest.raises(UsageError, match="op read failed"):
        resolve_text("op://vault/other", "password")


def test_a_tool_that_is_absent_is_named(tools: Path) -> None:
    with pytest.raises(UsageError, match="needs op, which is not on PATH"):
        resolve_text("op://vault/item", "token")


def test_a_jwt_may_be_a_text_or_the_path_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "user.jwt").write_text("eyJ\n")
    assert resolve_either(str(tmp_path / "user.jwt"), "jwt", "ey") == "eyJ\n"
    assert resolve_either("eyJ", "jwt", "ey") == "eyJ"
    with pytest.raises(UsageError, match="jwt: "):
        resolve_either(str(tmp_path / "nope"), "jwt", "ey")
