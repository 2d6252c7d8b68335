"""Contexts: the files of the `nats` tool, and commands about them as a person and a script see them."""

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from natsctl.cli.context import Keys
from natsctl.client.context_file import EMPTY
from natsctl.client.settings import Settings
from natsctl.wire.server_url import without_login
from tests.cli.conftest import groups_of
from tests.support.commands import Run


def test_secrets_are_hidden_unless_asked_for(ctx: Run, home: Path) -> None:
    login = ("--user", "bob", "--password", "s3cret", "--seed", "SUABC", "--token", "env://TOKEN")
    ctx("add", "prod", "-s", "nats://amy:geheim@p:1", *login)
    for words in (("ls", "-j"), ("info", "prod", "-j"), ("info", "prod"), ("ls",), ("validate", "-j")):
        shown = ctx(*words)
        assert "s3cret" not in shown.out + shown.err, words
        assert "geheim" not in shown.out + shown.err, words
        assert "SUABC" not in shown.out + shown.err, words
    listed = ctx("ls", "-j").json[0]
    assert (listed["user"], listed["password"], listed["token"]) == ("bob", "********", "env://TOKEN")
    assert without_login(listed["url"]) == "nats://p:1"
    assert ctx("ls", "-j", "--show-secrets").json[0]["password"] == "s3cret"
    assert "s3cret" in ctx("info", "prod", "--show-secrets").out
    changed = ctx("edit", "prod", "--password", "an0ther")
    assert "an0ther" not in changed.out + changed.err
    assert "password: ******** → ********" in changed.err


@pytest.mark.parametrize(("flag", "key"), [("--password-stdin", "password"), ("--token-stdin", "token")])
def test_a_secret_may_come_from_stdin(ctx: Run, home: Path, flag: str, key: str) -> None:
    assert ctx("add", "prod", "--user", "bob", flag, stdin=b"g\xc3\xbc\r\nmore\n").code == 0
    assert json.loads((home / ".config/nats/context/prod.json").read_text())[key] == "gü"
    assert "no password" in ctx("add", "prod", "--password-stdin").err
    assert ctx("add", "prod", "--password-stdin", "--token-stdin", stdin=b"x").code == 2
    assert ctx("add", "prod", "--password", "y", "--password-stdin", stdin=b"x").code == 2


def test_a_dry_run_shows_the_file_and_writes_nothing(ctx: Run, home: Path) -> None:
    said = ctx("add", "prod", "-s", "nats://p:1", "--password", "p", "--select", "--dry-run", "-j").json
    first, second = said["requests"]
    assert first["subject"] == f"{home}/.config/nats/context/prod.json"
    assert (first["body"]["url"], first["body"]["password"]) == ("nats://p:1", "********")
    assert second["subject"].endswith("context.txt")
    assert not (home / ".config").exists()
    ctx("add", "prod", "-s", "nats://p:1")
    ctx("select", "prod")
    assert ctx("edit", "prod", "--user", "bob", "--dry-run").code == 10
    assert ctx("edit", "prod", "--server", "nats://p:1", "--dry-run").code == 0
    assert ctx("unselect", "--dry-run", "-j").json["effect"]["removes"] == [f"{home}/.config/nats/context.txt"]
    assert ctx("info", "-j").json["user"] == ""


@pytest.mark.parametrize(
    "row", [*groups_of("context/failures.txt")["failures"], "add 'a\nb'  →  2  →  invalid context name"]
)
def test_a_failure_has_its_code_and_says_what_to_do(ctx: Run, row: str) -> None:
    line, code, text = row.split("  →  ")
    ctx("add", "prod", "-s", "nats://p:1")
    done = ctx(*shlex.split(line))
    assert (done.code, text in done.err) == (int(code), True)
    told = ctx(*shlex.split(line), "-j")
    assert (told.code, told.out) == (int(code), "")
    assert json.loads(told.err)["error"]["description"]


def test_the_selected_context_is_not_removed_and_an_absent_one_may_be_fine(ctx: Run) -> None:
    ctx("add", "prod", "--select")
    refused = ctx("rm", "prod", "-f")
    assert (refused.code, "unselect" in refused.err) == (4, True)
    ctx("unselect")
    assert ctx("rm", "prod", "-f", "-j").json == {"name": "prod", "removed": True}
    assert ctx("rm", "prod", "-f", "--missing-ok", "-j").json == {"name": "prod", "removed": False}
    assert ctx("ls", "--names").out == ctx("ls", "--completion").out == ""


def test_what_exists_is_left_alone_where_that_is_asked(ctx: Run) -> None:
    ctx("add", "prod", "-s", "nats://p:1")
    assert ctx("add", "prod", "-s", "nats://q:1", "--if-not-exists", "-j").json["url"] == "nats://p:1"
    assert ctx("copy", "prod", "stage", "-s", "nats://s:1", "-j").json["url"] == "nats://s:1"
    assert ctx("copy", "prod", "stage", "--force", "-j").json["url"] == "nats://p:1"


def test_variables_that_win_over_contexts_are_told(ctx: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx("add", "prod", "-s", "nats://p:1")
    monkeypatch.setenv("NATS_USER", "eve")
    monkeypatch.setenv("NATS_URL", "nats://other:1")
    for words in (("info", "prod"), ("select", "prod")):
        assert "environment overrides contexts: NATS_URL, NATS_USER" in ctx(*words).err
    assert ctx("info", "prod", "-j").err == ""


def test_validate_tells_what_can_not_be_used(ctx: Run, home: Path) -> None:
    ctx("add", "good", "-s", "nats://p:1")
    ctx("add", "creds", "--creds", "/nonexistent.creds")
    ctx("add", "half", "--tlscert", "/c.pem")
    (home / ".config/nats/context/broken.json").write_text("{")
    done = ctx("validate", "-j")
    assert done.code == 1
    found = {one["name"]: one["fault"] for one in done.json}
    assert found["good"] == ""
    assert "/nonexistent.creds" in found["creds"]
    assert "--tlscert and --tlskey" in found["half"] or "go together" in found["half"]
    assert "broken.json" in found["broken"]
    assert ctx("validate", "good").code == 0
    listed = ctx("ls", "-j").json
    assert [one["name"] for one in listed] == ["broken", "creds", "good", "half"]
    assert "broken.json" in listed[0]["fault"]


def test_connect_uses_the_context_and_nothing_else(
    shared_server: Any, ctx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx("add", "here", "-s", shared_server.url)
    ctx("add", "nowhere", "-s", "nats://127.0.0.1:1")
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:2")
    good = ctx("info", "here", "--connect", "-j")
    assert good.code == 0
    assert good.json["connection"]["url"] == shared_server.url
    assert good.json["connection"]["rtt"] > 0
    monkeypatch.setenv("NATS_URL", shared_server.url)
    bad = ctx("validate", "nowhere", "--connect", "-j")
    assert (bad.code, "nothing listens" in bad.json[0]["fault"]) == (1, True)


def test_a_selected_context_that_is_gone_is_told(ctx: Run, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from natsctl.cli.main import run

    ctx("add", "prod", "--select")
    (home / ".config/nats/context/prod.json").unlink()
    assert run(["str", "ls"]) == 3
    told = capsys.readouterr().err
    assert "selected context 'prod' does not exist" in told
    assert "context unselect" in told


def test_the_keys_of_the_three_descriptions_are_the_same() -> None:
    known = {name for name in Settings._fields if name not in ("timeout_s", "tls_insecure")}
    assert known <= set(EMPTY)
    assert set(Keys.__struct_fields__) == set(EMPTY)


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
    "--server": ("url", "nats://h:1"), "--user": ("user", "bob"), "--password": ("password", "p"),
    "--token": ("token", "t"), "--creds": ("creds", "~/u.creds"), "--nkey": ("nkey", "/u.nk"),
    "--jwt": ("user_jwt", "eyJ0"), "--seed": ("user_seed", "env://SEED"), "--tlscert": ("cert", "/c.pem"),
    "--tlskey": ("key", "/k.pem"), "--tlsca": ("ca", "/ca.pem"), "--js-domain": ("jetstream_domain", "hub"),
    "--js-api-prefix": ("jetstream_api_prefix", "hub.API"),
    "--js-event-prefix": ("jetstream_event_prefix", "hub.EVENT"), "--inbox-prefix": ("inbox_prefix", "_INBOX.bob"),
    "--socks-proxy": ("socks_proxy", "socks5://h:1"), "--colors": ("color_scheme", "double"),
    "--description": ("description", "the one"),
}  # fmt: skip


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
