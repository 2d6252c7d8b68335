"""`natsctl auth user`: users, their permissions, and the creds files that servers and nats accept."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from natsctl.client.auth.claims import read_any
from natsctl.client.auth.nsc_store import NscStore
from natsctl.client.auth.operators import User
from natsctl.testing.process import ServerProcess
from tests.cli.auth.conftest import Run
from tests.cli.auth.test_operators import nats, needs_nats


def _user(store: NscStore, name: str) -> User:
    return store.operator("RECORDED").account("ORDERS").user(name)


def test_a_new_user_has_what_the_flags_say(natsctl: Run, recorded: NscStore) -> None:
    code, out, err = natsctl(
        "auth", "user", "add", "new", "ORDERS", "--pub-allow", "a.>", "--pub-allow", "b", "--pub-deny", "a.secret",
        "--sub-allow", "q g", "--sub-deny", "_INBOX.x", "--payload", "64KiB", "--data", "1GiB", "--subscriptions", "7",
        "--bearer", "--locale", "Europe/Malta", "--tags", "T1", "--credential", "new.creds",
    )  # fmt: skip
    assert (code, err) == (0, "") and "Allow: a.>\n" in out and "Locale: Europe/Malta" in out
    user = _user(recorded, "new")
    assert user.nats == {
        "pub": {"allow": ["a.>", "b"], "deny": ["a.secret"]}, "sub": {"allow": ["q g"], "deny": ["_INBOX.x"]},
        "subs": 7, "data": 1 << 30, "payload": 65536, "bearer_token": True, "times_location": "Europe/Malta",
        "tags": ["t1"], "type": "user", "version": 2,
    }  # fmt: skip
    assert Path("new.creds").read_text() == user.credentials()
    assert Path("new.creds").stat().st_mode & 0o777 == 0o600 and user.key.seed not in out
    assert natsctl("auth", "user", "add", "new", "ORDERS")[0] == 4
    assert natsctl("auth", "user", "add", "plain", "ORDERS")[0] == 0
    assert (_user(recorded, "plain").nats["payload"], _user(recorded, "plain").nats["subs"]) == (1 << 20, -1)


def test_a_user_of_a_role_has_the_limits_of_the_role_only(natsctl: Run, recorded: NscStore) -> None:
    code, out, _ = natsctl("auth", "user", "add", "new", "ORDERS", "--key", "reader", "--tags", "x")
    user = _user(recorded, "new")
    assert code == 0 and "Role: reader" in out and "Max Subscriptions: 10" in out and "Allow: orders.>" in out
    assert user.nats["issuer_account"] == user.account.subject and "subs" not in user.nats
    for line in ("add other ORDERS --key reader --payload 5", "edit new ORDERS --sub-allow x"):
        code, _, err = natsctl("auth", "user", *line.split())
        assert code == 2 and "has the limits and permissions of the role reader" in err
    assert natsctl("auth", "user", "add", "other", "ORDERS", "--key", "writer")[0] == 3
    assert natsctl("auth", "user", "edit", "new", "ORDERS", "--tags", "y")[0] == 0
    assert _user(recorded, "new").tags == ["x", "y"]


def test_an_edit_changes_what_it_names_and_nothing_else(natsctl: Run, recorded: NscStore) -> None:
    before = _user(recorded, "app").nats
    assert natsctl("auth", "user", "edit", "app", "ORDERS", "--subscriptions", "5")[0] == 0
    assert _user(recorded, "app").nats == {**before, "subs": 5}
    assert natsctl("auth", "user", "edit", "app", "ORDERS", "--pub-allow", "x", "--pub-allow", "y")[0] == 0
    assert _user(recorded, "app").nats["pub"] == {"allow": ["x", "y"]}
    assert natsctl("auth", "user", "edit", "app", "ORDERS", "--pub-allow", "", "--no-tags", "X")[0] == 0
    assert (_user(recorded, "app").nats["pub"], _user(recorded, "app").tags) == ({}, [])
    token = _user(recorded, "app").token
    for line in (
        "edit app ORDERS", "edit app ORDERS --payload much", "edit app ORDERS --subscriptions -2",
        "edit app ORDERS --locale Nowhere/There", "edit app ORDERS --sub-allow a..b", "edit app --bearer",
        "edit app ORDERS --bearer --credential none/x.creds",
    ):  # fmt: skip
        assert natsctl("auth", "user", *line.split())[0] == 2, line
    assert natsctl("auth", "user", "edit", "app", "ORDERS", "--pub-deny", "", "--pub-deny", "x")[0] == 2
    assert _user(recorded, "app").token == token


def test_credentials_are_written_once_and_may_expire(natsctl: Run, recorded: NscStore) -> None:
    assert natsctl("auth", "user", "cred", "app.creds", "app", "ORDERS")[1] == "Wrote credential for app to app.creds\n"
    assert Path("app.creds").stat().st_mode & 0o777 == 0o600
    code, _, err = natsctl("auth", "user", "credential", "app.creds", "app", "ORDERS", "--expire", "1h")
    assert code == 4 and "--force" in err
    assert natsctl("auth", "user", "credential", "app.creds", "app", "ORDERS", "--expire", "1h", "-f")[0] == 0
    claims, _ = read_any(Path("app.creds").read_text().splitlines()[1])
    assert 3590 < claims["exp"] - time.time() < 3610
    assert "exp" not in _user(recorded, "app").claims
    assert natsctl("auth", "user", "credential", "-", "app", "ORDERS")[1] == _user(recorded, "app").credentials()
    for expire in ("soon", "-1h", "0"):
        assert natsctl("auth", "user", "credential", "x", "app", "ORDERS", "--expire", expire)[0] == 2
    recorded.key_path(_user(recorded, "app").subject).unlink()
    code, _, err = natsctl("auth", "user", "credential", "x", "app", "ORDERS")
    assert code == 2 and "needs the private key" in err and not Path("x").exists()


def test_users_are_listed_with_what_binds_them(natsctl: Run, recorded: NscStore) -> None:
    found = json.loads(natsctl("auth", "user", "ls", "ORDERS", "-j")[1])
    watcher, app = _user(recorded, "watcher").subject, _user(recorded, "app").subject
    assert found == [
        {"name": "app", "subject": app, "scoped": False, "pub_permissions": True, "sub_permissions": False, "subs": -1},
        {"name": "watcher", "subject": watcher, "scoped": True, "pub_permissions": True, "sub_permissions": True,
         "subs": 10},
    ]  # fmt: skip
    out = natsctl("auth", "user", "ls", "ORDERS")[1]
    assert "Users in account ORDERS" in out and "unlimited" in out
    assert natsctl("auth", "user", "ls", "ORDERS", "--names")[1] == "app\nwatcher\n"
    assert natsctl("auth", "user", "ls")[0] == 2 and natsctl("auth", "user", "ls", "ORDER")[0] == 3


def test_a_removed_user_is_gone_and_revoked_where_that_is_asked_for(natsctl: Run, recorded: NscStore) -> None:
    app, watcher = _user(recorded, "app"), _user(recorded, "watcher")
    kept = recorded.credentials_path(app)
    kept.parent.mkdir(parents=True)
    kept.write_text(app.credentials())
    assert natsctl("auth", "user", "rm", "app", "ORDERS")[0] == 2 and _user(recorded, "app")
    assert natsctl("auth", "user", "rm", "app", "ORDERS", "--force") == (0, "Removed user app\n", "")
    assert not kept.exists()
    assert "revocations" not in recorded.operator("RECORDED").account("ORDERS").nats
    code, _, err = natsctl("auth", "user", "rm", "watcher", "ORDERS", "--force", "--revoke")
    assert code == 0 and "account push ORDERS" in err
    account = recorded.operator("RECORDED").account("ORDERS")
    assert not account.users and account.typed.revokes(watcher.typed) and not account.typed.revokes(app.typed)
    assert not recorded.key_path(app.subject).exists()
    assert natsctl("auth", "user", "rm", "app", "ORDERS", "--force")[0] == 3


@needs_nats
def test_nats_shows_a_user_that_was_made_and_changed_here(natsctl: Run, recorded: NscStore) -> None:
    assert natsctl("auth", "user", "add", "new", "ORDERS", "--sub-allow", "a.>", "--payload", "-1")[0] == 0
    assert natsctl("auth", "user", "edit", "app", "ORDERS", "--bearer")[0] == 0
    assert natsctl("auth", "user", "add", "scoped", "ORDERS", "--key", "reader")[0] == 0
    assert "orders.>" in nats("user", "info", "scoped", "ORDERS")
    shown = nats("user", "info", "new", "ORDERS")
    assert "Allow: a.>" in shown and "Max Payload: unlimited" in shown
    assert "Bearer Token: true" in nats("user", "info", "app", "ORDERS")
    nats("user", "cred", "new.creds", "new", "ORDERS")
    assert Path("new.creds").read_text() == _user(recorded, "new").credentials()


@pytest.fixture
def operated(server_kind: str, recorded: NscStore, tmp_path: Path) -> Iterator[str]:
    """The URL of a server that trusts the recorded operator and has its accounts preloaded."""
    operator = recorded.operator("RECORDED")
    preload = "".join(f"  {account.subject}: {account.token}\n" for account in operator.accounts)
    conf = tmp_path / "nats.conf"
    conf.write_text(
        f"operator: {operator.token}\nsystem_account: {operator.nats['system_account']}\n"
        f"resolver: MEMORY\nresolver_preload {{\n{preload}}}\n"
    )
    kind = "natsctl" if server_kind == "natsctl" else "reference"
    with ServerProcess(tmp_path / "js", kind, "-c", str(conf)) as running:
        yield running.url


@pytest.mark.parametrize("server_kind", ["natsctl", pytest.param("reference", marks=pytest.mark.reference)])
def test_servers_let_users_in_and_hold_them_to_their_permissions(natsctl: Run, operated: str) -> None:
    for words in (("new", "--pub-allow", "orders.new", "--sub-allow", "_INBOX.>"), ("scoped", "--key", "reader")):
        assert natsctl("auth", "user", "add", words[0], "ORDERS", *words[1:], "--credential", words[0])[0] == 0
    login = ("--server", operated, "--creds")
    assert natsctl(*login, "new", "pub", "orders.new", "x")[0] == 0
    assert natsctl(*login, "new", "pub", "orders.old", "x")[0] == 6
    assert natsctl(*login, "scoped", "pub", "orders.new", "x")[0] == 6
    Path("wrong").write_text(Path("new").read_text().replace("USER JWT-----\ne", "USER JWT-----\nf"))
    assert natsctl(*login, "wrong", "pub", "orders.new", "x")[0] != 0


def test_a_context_logs_in_with_credentials_of_the_store(natsctl: Run, recorded: NscStore, tmp_path: Path) -> None:
    code, out, _ = natsctl("context", "add", "orders", "--nsc", "nsc://RECORDED/ORDERS/app", "-j")
    shown = json.loads(out)
    assert code == 0 and shown["creds"] == "nsc://RECORDED/ORDERS/app" and shown["url"] == "nats://localhost:4222"
    assert natsctl("context", "validate", "orders")[0] == 0
    assert natsctl("context", "edit", "orders", "--nsc", "nsc://RECORDED/ORDERS/watcher", "-f")[0] == 0
    assert natsctl("context", "add", "x", "--nsc", "nsc://RECORDED/ORDERS/none")[0] == 3
    assert natsctl("context", "add", "x", "--nsc", "nsc://RECORDED/ORDERS/app", "--creds", "y")[0] == 2
    assert natsctl("context", "add", "own", "-s", "nats://h:1", "--nsc", "nsc://RECORDED/ORDERS/app", "-j")[0] == 0
    assert json.loads(natsctl("context", "info", "own", "-j")[1])["url"] == "nats://h:1"


@pytest.mark.parametrize("server_kind", ["natsctl", pytest.param("reference", marks=pytest.mark.reference)])
def test_servers_accept_what_an_nsc_url_stands_for(natsctl: Run, operated: str) -> None:
    assert natsctl("--server", operated, "--creds", "nsc://RECORDED/ORDERS/app", "pub", "orders.new", "x")[0] == 0
    code, _, err = natsctl("--server", operated, "--creds", "nsc://RECORDED/ORDERS/none", "pub", "orders.new", "x")
    assert code == 3 and "creds: user none not found" in err
