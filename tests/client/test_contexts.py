"""natscli's own context files, read in place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import UsageError
from natsctl.client.contexts import Contexts


def _save(home: Path, name: str, **values: Any) -> None:
    folder = home / ".config" / "nats" / "context"
    folder.mkdir(parents=True, exist_ok=True)
    every = {"description": "", "url": "", "user": "", "password": "", "creds": "", "nsc": "", "color_scheme": ""}
    (folder / f"{name}.json").write_text(json.dumps({**every, **values}))


def test_a_context_is_read_with_its_paths_expanded(tmp_path: Path) -> None:
    _save(tmp_path, "prod", url="nats://p:4222", creds="~/p.creds", tls_first=True, jetstream_domain="hub")
    loaded = Contexts({"HOME": str(tmp_path)}).load("prod")
    assert loaded.url == "nats://p:4222"
    assert loaded.creds == f"{tmp_path}/p.creds"
    assert loaded.tls_first
    assert loaded.jetstream_domain == "hub"


def test_xdg_config_home_moves_the_folder(tmp_path: Path) -> None:
    _save(tmp_path, "prod", url="u")
    environment = {"HOME": "/nowhere", "XDG_CONFIG_HOME": str(tmp_path / ".config")}
    assert Contexts(environment).load("prod").url == "u"


def test_a_context_may_be_named_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "elsewhere.json"
    file.write_text('{"url": "nats://e:4222"}')
    assert Contexts({"HOME": str(tmp_path)}).load(str(file)).url == "nats://e:4222"


@pytest.mark.parametrize("name", ["../prod", "a/b", "a\\b", ""])
def test_a_name_never_leaves_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="invalid context name"):
        Contexts({"HOME": str(tmp_path)}).load(name)


@pytest.mark.parametrize(("text", "fault"), [('{"user": 5}', r"\$\.user: expected str, got int"), ("{", r"prod\.json")])
def test_what_is_no_context_is_told_by_path(tmp_path: Path, text: str, fault: str) -> None:
    _save(tmp_path, "prod")
    (tmp_path / ".config" / "nats" / "context" / "prod.json").write_text(text)
    with pytest.raises(UsageError, match=fault):
        Contexts({"HOME": str(tmp_path)}).load("prod")


def test_the_selected_context_is_the_name_in_the_text_file(tmp_path: Path) -> None:
    _save(tmp_path, "prod")
    assert Contexts({"HOME": str(tmp_path)}).selected() == ""
    (tmp_path / ".config" / "nats" / "context.txt").write_text("prod\n")
    assert Contexts({"HOME": str(tmp_path)}).selected() == "prod"
