"""Contexts are the files of the `nats` tool: what is written there, what is kept, and who may read it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def _file(home: Path, name: str) -> Path:
    return home / ".config" / "nats" / "context" / f"{name}.json"


def test_add_writes_what_the_flags_say_for_its_owner_alone(ctx: Run, home: Path) -> None:
    assert ctx("add", "prod", "-s", "nats://p:1,nats://q:2", "--user", "bob", "--js-domain", "hub").code == 0
    file = _file(home, "prod")
    said = json.loads(file.read_text())
    assert (said["url"], said["user"], said["jetstream_domain"]) == ("nats://p:1,nats://q:2", "bob", "hub")
    assert said["windows_ca_certs_match"] is None
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [one.name for one in file.parent.iterdir()] == ["prod.json"]


FLAGS = {
    "--server": ("url", "nats://h:1"),
    "--user": ("user", "bob"),
    "--password": ("password", "p"),
    "--token": ("token", "t"),
    "--creds": ("creds", "~/u.creds"),
    "--nkey": ("nkey", "/u.nk"),
    "--jwt": ("user_jwt", "eyJ0"),
    "--seed": ("user_seed", "env://SEED"),
    "--tlscert": ("cert", "/c.pem"),
    "--tlskey": ("key", "/k.pem"),
    "--tlsca": ("ca", "/ca.pem"),
    "--js-domain": ("jetstream_domain", "hub"),
    "--js-api-prefix": ("jetstream_api_prefix", "hub.API"),
    "--js-event-prefix": ("jetstream_event_prefix", "hub.EVENT"),
    "--inbox-prefix": ("inbox_prefix", "_INBOX.bob"),
    "--socks-proxy": ("socks_proxy", "socks5://h:1"),
    "--colors": ("color_scheme", "double"),
    "--description": ("description", "the one"),
}


def test_every_flag_for_server_and_login_is_kept_under_its_key(ctx: Run, home: Path) -> None:
    words = [word for flag, (_, value) in FLAGS.items() for word in (flag, value)]
    assert ctx("add", "all", *words, "--tlsfirst").code == 0
    said = json.loads(_file(home, "all").read_text())
    assert {key: said[key] for key, _ in FLAGS.values()} == dict(FLAGS.values())
    assert said["tls_first"] is True


def test_a_change_keeps_everything_else_in_the_file(ctx: Run, home: Path) -> None:
    ctx("add", "prod", "-s", "nats://p:1", "--user", "bob")
    file = _file(home, "prod")
    file.write_text(json.dumps({**json.loads(file.read_text()), "from_the_future": {"a": [1]}, "description": "d"}))
    for change in (("edit", "prod", "--js-domain", "hub"), ("add", "prod", "--creds", "/x.creds")):
        assert ctx(*change).code == 0
    said = json.loads(file.read_text())
    assert said["from_the_future"] == {"a": [1]}
    assert (said["url"], said["user"], said["description"]) == ("nats://p:1", "bob", "d")
    assert (said["jetstream_domain"], said["creds"]) == ("hub", "/x.creds")


def test_a_link_into_a_folder_of_dotfiles_stays_one(ctx: Run, home: Path) -> None:
    ctx("add", "other")
    kept = home / "dotfiles.json"
    kept.write_text('{"url": "nats://p:1"}')
    _file(home, "prod").symlink_to(kept)
    assert ctx("edit", "prod", "--user", "bob").code == 0
    assert _file(home, "prod").is_symlink()
    assert json.loads(kept.read_text())["user"] == "bob"


def test_unset_takes_values_away_by_key_or_flag(ctx: Run, home: Path) -> None:
    ctx("add", "prod", "-s", "nats://p:1", "--user", "bob", "--password", "p", "--tlsfirst", "--js-domain", "hub")
    done = ctx("edit", "prod", "--unset", "password,js-domain", "--unset", "tls_first")
    assert done.code == 0
    assert "hub → (none)" in done.err
    said = json.loads(_file(home, "prod").read_text())
    assert (said["password"], said["jetstream_domain"], said["tls_first"]) == ("", "", False)
    assert said["user"] == "bob"
    assert 'did you mean "user"' in ctx("edit", "prod", "--unset", "usr").err


def test_the_editor_changes_what_the_person_changes(ctx: Run, home: Path) -> None:
    ctx("add", "prod", "-s", "nats://p:1", "--user", "bob", "--js-domain", "hub")
    environment = {**os.environ, "EDITOR": "sed -i -e 's/bob/eve/' -e '/^jetstream_domain/d'"}
    command = [sys.executable, "-m", "natsctl", "context", "edit", "prod", "-i"]
    assert subprocess.run(command, env=environment, capture_output=True, check=False, timeout=60).returncode == 0
    said = json.loads(_file(home, "prod").read_text())
    assert (said["url"], said["user"], said["jetstream_domain"]) == ("nats://p:1", "eve", "")


def test_embed_puts_the_credentials_into_the_file(ctx: Run, home: Path) -> None:
    (home / "u.creds").write_text("CREDENTIALS")
    assert ctx("add", "prod", "--creds", "~/u.creds", "--embed").code == 0
    assert json.loads(_file(home, "prod").read_text())["creds"] == "data:;base64,Q1JFREVOVElBTFM="
    assert "Q1JFRE" not in ctx("info", "prod", "-j").out
    assert ctx("add", "bad", "--creds", "/nonexistent", "--embed").code == 2
    assert not _file(home, "bad").exists()


def test_select_previous_and_unselect_keep_the_two_names(ctx: Run, home: Path) -> None:
    for name in ("a", "b"):
        ctx("add", name)
    selected, before = home / ".config/nats/context.txt", home / ".config/nats/previous-context.txt"
    ctx("select", "a")
    assert (selected.read_text(), before.exists()) == ("a", False)
    assert ctx("switch", "b", "-j").json["selected"] is True
    assert (selected.read_text(), before.read_text()) == ("b", "a")
    assert ctx("-").code == 0
    assert (selected.read_text(), before.read_text()) == ("a", "b")
    assert ctx("unselect", "-j").json == {"name": "a"}
    assert (selected.exists(), before.read_text()) == (False, "a")
    assert ctx("previous").code == 0
    assert selected.read_text() == "a"


@pytest.mark.reference("nats")
def test_the_nats_tool_reads_what_is_written_and_the_other_way_round(ctx: Run, nats: Run) -> None:
    ctx("add", "ours", "-s", "nats://o:1", "--user", "bob", "--password", "p", "--description", "from here", "--select")
    listed = {one["name"]: one for one in json.loads(nats("context", "ls", "-j"))}
    assert (listed["ours"]["url"], listed["ours"]["password"]) == ("nats://o:1", "p")
    assert json.loads(nats("context", "info", "-j"))["name"] == "ours"
    nats("context", "add", "theirs", "-s", "nats://t:1", "--creds", "/t.creds", "--tlsfirst")
    nats("context", "select", "theirs")
    said = ctx("info", "-j").json
    assert (said["name"], said["selected"], said["creds"], said["tls_first"]) == ("theirs", True, "/t.creds", True)
    before = json.loads(nats("context", "info", "theirs", "-j"))
    assert ctx("edit", "theirs", "--description", "d").code == 0
    assert json.loads(nats("context", "info", "theirs", "-j")) == {**before, "description": "d"}
