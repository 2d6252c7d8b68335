"""`natsctl auth operator` and `user`: what is made, changed, selected, saved and restored, here and by nats."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from natsctl.cli.framework.candidates import candidates
from natsctl.client.auth.claims import read_any
from natsctl.client.auth.keys import generate_key
from natsctl.client.auth.nsc_store import LOCK_NAME, NscStore
from natsctl.client.auth.operators import ManagedUser
from natsctl.testing.process import ServerProcess
from tests.support.commands import Run

needs_nats = pytest.mark.reference("nats")


def _files(store: NscStore) -> dict[str, str]:
    root = store.stores.parent
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.name not in (".gitignore", LOCK_NAME))
    return {str(path.relative_to(root)): path.read_text() for path in files}


def nats(*words: str) -> str:
    return subprocess.run(["nats", "auth", *words], capture_output=True, text=True, check=True, timeout=60).stdout


def test_a_new_operator_has_a_system_account_and_a_signing_key(natsctl: Run, store: NscStore) -> None:
    code, out, err = natsctl(
        "auth", "op", "add", "ACME", "--service", "nats://a:4222", "--service", "tls://b", "--tags", "X",
        "--account-server", "https://x/jwt/v1",
    )  # fmt: skip
    operator = store.operator("ACME")
    assert (code, err) == (0, "") and out.startswith(f"Operator ACME ({operator.subject})\n")
    for row in (
        "Service URL(s): nats://a:4222, tls://b",
        "Account Server: https://x/jwt/v1",
        "Tags: x",
        "Accounts: 1",
        f"System Account: SYSTEM ({operator.account('SYSTEM').subject})",
        f"Signing Keys: {operator.signing_key_names[0]}",
    ):
        assert row in out
    assert natsctl("auth", "operator", "add", "ACME")[0] == 4
    assert natsctl("auth", "operator", "add", "BARE", "--no-signing-key", "-j")[0] == 0
    assert store.operator("BARE").signing_key_names == []


def test_a_private_key_is_shown_only_where_it_is_asked_for(natsctl: Run, recorded: NscStore) -> None:
    operator = recorded.operator("RECORDED")
    seeds = [text for name, text in _files(recorded).items() if name.endswith(".nk")]
    for line in ("info RECORDED", "info RECORDED -j", "ls -j", "ls", "keys ls", "edit RECORDED --tags x --dry-run"):
        code, out, err = natsctl("auth", "operator", *line.split())
        assert code == 0 and not any(seed in out + err for seed in seeds), line
    shown = json.loads(natsctl("auth", "operator", "info", "-j", "--show-secrets")[1])
    assert shown["key"] == {"key": operator.key.seed} and shown["token"] == operator.token
    assert shown["name"] == "RECORDED" and shown["nats"]["type"] == "operator"


def test_an_edit_changes_what_it_names_and_nothing_else(natsctl: Run, recorded: NscStore) -> None:
    before = recorded.operator("RECORDED")
    assert natsctl("auth", "operator", "edit", "--tags", "New", "--no-tags", "made")[0] == 0
    after = recorded.operator("RECORDED")
    assert after.tags == ["by-nats", "new"]
    assert {**after.nats, "tags": 0} == {**before.nats, "tags": 0}
    code, _, err = natsctl("auth", "operator", "edit")
    assert code == 2 and "nothing to change" in err
    code, _, err = natsctl("auth", "operator", "edit", "--service", "http://x")
    assert code == 2 and "protocol not supported" in err
    assert recorded.operator("RECORDED").token == after.token


def test_the_selected_operator_is_used(natsctl: Run, store: NscStore, tmp_path: Path) -> None:
    for name in ("A", "B"):
        assert natsctl("auth", "operator", "add", name)[0] == 0
    code, _, err = natsctl("auth", "operator", "info")
    assert code == 2 and "there are A, B" in err
    assert natsctl("auth", "operator", "select", "B", "--dry-run")[0] == 0 and store.selected() == ""
    assert natsctl("auth", "operator", "select", "B") == (0, 'Selected operator "B" as default\n', "")
    assert json.loads((tmp_path / "config" / "nats" / "cli" / "config.json").read_text()) == {"select_operator": "B"}
    assert natsctl("auth", "operator", "info")[1].startswith("Operator B (")
    assert [one["selected"] for one in json.loads(natsctl("auth", "operator", "ls", "-j")[1])] == [False, True]
    assert "B*" in natsctl("auth", "operator", "ls")[1] and natsctl("auth", "operator", "ls", "--names")[1] == "A\nB\n"
    code, _, err = natsctl("auth", "operator", "select", "C")
    assert (code, "operator C not found" in err) == (3, True) and store.selected() == "B"


def test_without_operators_the_next_step_is_named(natsctl: Run) -> None:
    assert natsctl("auth", "operator", "ls") == (0, "No Operators found\n", "")
    assert natsctl("auth", "operator", "ls", "-j")[1] == "[]\n"
    code, _, err = natsctl("auth", "operator", "info")
    assert code == 2 and "natsctl auth operator add" in err


@pytest.mark.parametrize("sealed", [False, True])
def test_a_backup_restores_everything(natsctl: Run, recorded: NscStore, sealed: bool) -> None:
    before = _files(recorded)
    key: list[str] = []
    if sealed:
        assert natsctl("auth", "nkey", "gen", "curve", "--output", "mine.xk")[0] == 0
        key = ["--key", "mine.xk"]
    code, out, err = natsctl("auth", "operator", "backup", "RECORDED", "saved", *key)
    assert (code, out) == (0, "Wrote backup for RECORDED to saved\n") and ("not encrypted" in err) is not sealed
    assert Path("saved").stat().st_mode & 0o777 == 0o600
    assert ("RECORDED" in Path("saved").read_text()) is not sealed
    assert natsctl("auth", "operator", "restore", "RECORDED", "saved", *key)[0] == 4
    shutil.rmtree(recorded.stores.parent)
    code, _, err = natsctl("auth", "operator", "restore", "OTHER", "saved", *key)
    assert code == 2 and "a backup of operator RECORDED" in err and not recorded.stores.exists()
    if sealed:
        assert natsctl("auth", "operator", "restore", "RECORDED", "saved")[0] == 2
        Path("other.xk").write_text(generate_key("curve").seed)
        assert natsctl("auth", "operator", "restore", "RECORDED", "saved", "--key", "other.xk")[0] == 1
    assert natsctl("auth", "operator", "restore", "RECORDED", "saved", *key)[0] == 0
    assert _files(recorded) == before


@pytest.mark.parametrize("sealed", [False, True])
def test_a_backup_replaces_one_of_the_same_operator_alone(natsctl: Run, recorded: NscStore, sealed: bool) -> None:
    assert natsctl("auth", "operator", "add", "SECOND")[0] == 0
    assert natsctl("auth", "nkey", "gen", "curve", "--output", "mine.xk")[0] == 0
    key = ["--key", "mine.xk"] if sealed else []
    backup = ("auth", "operator", "backup")
    assert [natsctl(*backup, "RECORDED", "saved", *key)[0] for _ in range(2)] == [0, 0]
    before = Path("saved").read_bytes()
    code, _, err = natsctl(*backup, "SECOND", "saved", *key)
    assert code == 4 and "saved is a backup of operator RECORDED" in err and "--force" in err
    Path("other").write_text("mine")
    code, _, err = natsctl(*backup, "SECOND", "other", *key)
    assert code == 4 and "is no backup of SECOND" in err
    assert (Path("saved").read_bytes(), Path("other").read_text()) == (before, "mine")
    assert natsctl(*backup, "SECOND", "other", *key, "--force")[0] == 0


@needs_nats
def test_backups_and_the_selection_go_from_one_tool_to_the_other(natsctl: Run, recorded: NscStore) -> None:
    assert natsctl("auth", "operator", "add", "SECOND")[0] == natsctl("auth", "operator", "select", "SECOND")[0] == 0
    assert nats("operator", "info").startswith("Operator SECOND (")
    before = recorded.operator("RECORDED")
    nats("operator", "backup", "RECORDED", "theirs.json")
    assert natsctl("auth", "operator", "backup", "RECORDED", "ours.json")[0] == 0
    assert json.loads(Path("ours.json").read_text())["accounts"][0]["users"][1]["name"] == "watcher"
    shutil.rmtree(recorded.stores.parent)
    assert natsctl("auth", "operator", "restore", "RECORDED", "theirs.json")[0] == 0
    assert [one.token for one in recorded.operator("RECORDED").accounts] == [one.token for one in before.accounts]
    shutil.rmtree(recorded.stores.parent)
    assert before.subject in nats("operator", "restore", "RECORDED", "ours.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found.pop("token"), "expected the texts name and token"),
        (lambda found: found.update(name="../x"), "invalid operator name"),
        (lambda found: found.update(accounts=[1]), "expected a list of objects"),
        (lambda found: found["accounts"].append(found["accounts"][0]), "two of the name"),
        (lambda found: found["accounts"][0]["users"][0].update(token="x.y.z"), r"users[0]: "),
        (lambda found: found["accounts"][0].update(key=found["key"]), "the seed does not belong to A"),
        (lambda found: found["accounts"][0]["users"][0].update(name="a/b"), "invalid user name"),
    ],
)
def test_a_damaged_backup_is_refused_with_its_place(
    natsctl: Run, recorded: NscStore, change: object, message: str
) -> None:
    assert natsctl("auth", "operator", "backup", "RECORDED", "saved")[0] == 0
    document = json.loads(Path("saved").read_text())
    change(document)  # type: ignore[operator]
    Path("saved").write_text(json.dumps(document))
    shutil.rmtree(recorded.stores.parent)
    code, out, err = natsctl("auth", "operator", "restore", "RECORDED", "saved")
    assert code in (1, 2) and out == "" and message in err and not recorded.stores.exists()


def test_an_operator_is_imported_with_all_its_keys(natsctl: Run, recorded: NscStore) -> None:
    operator = recorded.operator("RECORDED")
    Path("op.jwt").write_text(operator.token)
    Path("identity.nk").write_text(operator.key.seed + "\n")
    Path("signing.nk").write_text(operator.signing_keys[0].seed)
    Path("other.nk").write_text(generate_key("operator").seed)
    assert natsctl("auth", "operator", "import", "op.jwt", "identity.nk", "signing.nk")[0] == 4
    shutil.rmtree(recorded.stores.parent)
    code, _, err = natsctl("auth", "operator", "import", "op.jwt", "identity.nk")
    assert code == 2 and f"the seed of {operator.signing_key_names[0]} is missing" in err
    code, _, err = natsctl("auth", "operator", "import", "op.jwt", "identity.nk", "signing.nk", "other.nk")
    assert code == 2 and "has no key O" in err
    assert natsctl("auth", "operator", "import", "none.jwt")[0] == 2 and not recorded.stores.exists()
    assert natsctl("auth", "operator", "import", "op.jwt", "signing.nk", "identity.nk")[0] == 0
    again = recorded.operator("RECORDED")
    assert again.token == operator.token and len(again.signing_keys) == 1 and again.key.is_private


def test_signing_keys_come_and_go(natsctl: Run, recorded: NscStore) -> None:
    first = recorded.operator("RECORDED").signing_key_names[0]
    code, out, _ = natsctl("auth", "operator", "sk", "add", "RECORDED")
    key = out.strip()
    assert code == 0 and natsctl("auth", "operator", "keys", "ls")[1].split() == [first, key]
    operator = recorded.operator("RECORDED")
    assert recorded.key_path(key).exists()
    operator.account("ORDERS").claims["iss"] = key
    operator.account("ORDERS").sign()
    recorded.save(operator)
    code, _, err = natsctl("auth", "operator", "keys", "rm", "RECORDED", key)
    assert code == 2 and "--force" in err
    code, out, err = natsctl("auth", "operator", "keys", "rm", "RECORDED", key, "--force")
    assert (code, out) == (0, "Signing key removed\n") and "no longer trust ORDERS" in err
    assert not recorded.key_path(key).exists() and recorded.operator("RECORDED").signing_key_names == [first]
    assert natsctl("auth", "operator", "keys", "rm", "RECORDED", key, "--force")[0] == 3


def test_a_dry_run_writes_nothing(natsctl: Run, recorded: NscStore) -> None:
    before = _files(recorded)
    for line in (
        "operator add NEW", "operator edit --tags x", "operator keys add", "operator backup RECORDED out",
        "user add new ORDERS --credential new.creds", "user edit app ORDERS --bearer", "user rm app ORDERS --revoke",
        "user credential app.creds app ORDERS", "nkey gen user --output u.nk", "account keys add ORDERS other",
    ):  # fmt: skip
        code, out, err = natsctl("auth", *line.split(), "--dry-run", "-j")
        assert code == 0 and json.loads(out)["dry_run"] is True, (line, err)
    assert _files(recorded) == before
    assert not [path for path in Path().iterdir() if path.is_file()]


def test_names_of_the_store_are_completed(recorded: NscStore) -> None:
    def words(*typed: str) -> list[str]:
        return [one.word for one in candidates(typed, time.monotonic() + 20)]

    assert words("auth", "operator", "info", "") == ["RECORDED"]
    assert words("auth", "user", "ls", "") == ["ORDERS", "SYSTEM"]
    assert words("auth", "user", "info", "") == ["app", "watcher", "admin"]
    assert words("auth", "user", "info", "--operator", "") == ["RECORDED"]
    assert words("auth", "operator", "backup", "RE") == ["RECORDED"]
    assert "x25519" in words("auth", "nkey", "gen", "")
    shutil.rmtree(recorded.stores)
    assert words("auth", "operator", "info", "") == words("auth", "user", "ls", "") == []


def _user(store: NscStore, name: str) -> ManagedUser:
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


def test_an_edit_of_a_user_changes_what_it_names(natsctl: Run, recorded: NscStore) -> None:
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
