"""Which server a command talks to, and natscli's own context files, read in place."""

import json
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import UsageError
from natsctl.client.contexts import ContextNotFoundError, Contexts
from natsctl.client.servers import TargetKind, resolve, server_urls
from natsctl.client.settings import Settings


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose home has the contexts `prod` and `dev`, the second selected."""
    folder = tmp_path / ".config" / "nats" / "context"
    folder.mkdir(parents=True)
    (folder / "prod.json").write_text(json.dumps({"url": "nats://prod:4222", "user": "p", "password": "s"}))
    (folder / "dev.json").write_text(json.dumps({"url": "nats://dev:4222", "jetstream_domain": "edge"}))
    (folder.parent / "context.txt").write_text("dev")
    return {"HOME": str(tmp_path)}


def test_without_any_name_the_default_server_is_looked_for(tmp_path: Path) -> None:
    target = resolve(Settings(), {"HOME": str(tmp_path)})
    assert (target.kind, target.urls) == (TargetKind.DEFAULT, ("nats://127.0.0.1:4222",))


def test_a_selected_context_that_is_gone_fails_only_where_it_names_the_server(home: dict[str, str]) -> None:
    (Path(home["HOME"]) / ".config" / "nats" / "context" / "dev.json").unlink()
    with pytest.raises(ContextNotFoundError):
        resolve(Settings(), home)
    assert resolve(Settings(url="x:1"), home).urls == ("nats://x:1",)


def test_the_domain_of_a_context_maps_the_api(home: dict[str, str]) -> None:
    assert resolve(Settings(), home).api_prefix == "$JS.edge.API"
    assert resolve(Settings(jetstream_api_prefix="from.hub."), home).api_prefix == "from.hub"
    assert resolve(Settings(), home, "prod").api_prefix == "$JS.API"


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("localhost", ("nats://localhost:4222",)),
        ("localhost:14222", ("nats://localhost:14222",)),
        ("nats://a, tls://b:1", ("nats://a:4222", "tls://b:1")),
        ("nats://u:p@a", ("nats://u:p@a:4222",)),
        ("[::1]:5", ("nats://[::1]:5",)),
        ("ws://a:80,t%2Ck@b", ("ws://a:80", "nats://t%2Ck@b:4222")),
    ],
)
def test_addresses_are_completed(text: str, urls: tuple[str, ...]) -> None:
    assert server_urls(text, "--server") == urls


@pytest.mark.parametrize(
    "text", ["http://a", " , ", "nats://ann:secret@host:port", "a,nats://secret:9x", "u:a,secret@h"]
)
def test_what_is_no_address_is_a_usage_error_without_secrets(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        server_urls(text, "--server")
    assert "secret" not in str(raised.value) + raised.value.hint


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
