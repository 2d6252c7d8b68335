"""`natsctl auth account` changes JWTs in the store, as the nats tool reads them."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natsctl.cli.auth.account_settings import refusal
from natsctl.client.auth.claims import read_claims
from natsctl.client.auth.nsc_store import NscStore
from natsctl.client.auth.operators import new_operator
from natsctl.client.system.system_account import ServerAnswer
from natsctl.testing.process import ServerProcess

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def auth(store: NscStore, natsctl: Run) -> Run:
    """Commands of `auth account` on a store with the operator OP and the account APP."""
    operator = new_operator("OP")
    operator.add_account("APP")
    store.save(operator)
    return lambda *words: natsctl("auth", "account", *words)


def claims(store: NscStore, name: str = "APP") -> dict[str, Any]:
    """The claims in the account's file, whose signature is checked."""
    path = store.stores / "OP" / "accounts" / name / f"{name}.jwt"
    return dict(read_claims(path.read_text(), "account", str(path)))


def files(store: NscStore) -> dict[str, bytes]:
    root = store.stores.parent
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


# -- settings


def test_an_account_is_added_with_its_limits(auth: Run, store: NscStore) -> None:
    words = (
        "--connections", "10", "--imports", "1", "--exports", "2", "--leafnodes", "0", "--payload", "1MB",
        "--subscriptions", "5", "--jetstream", "--js-disk", "2GB", "--js-memory", "-1", "--js-streams", "7",
        "--js-consumers", "8", "--js-max-pending", "9", "--js-disk-stream", "1GB", "--js-memory-stream", "1MB",
        "--js-stream-size-required", "--js-cluster-traffic", "owner", "--bearer", "--expiry", "1d", "--tags", "A,b",
    )  # fmt: skip
    code, out, err = auth("add", "NEW", *words)
    assert (code, err) == (0, "")
    assert re.search(r"Connections: 10\n", out)
    found = claims(store, "NEW")
    assert found["nats"]["limits"] == {
        "conn": 10, "imports": 1, "exports": 2, "payload": 1 << 20, "subs": 5, "data": -1, "wildcards": True,
        "disk_storage": 2 << 30, "mem_storage": -1, "streams": 7, "consumer": 8, "max_ack_pending": 9,
        "disk_max_stream_bytes": 1 << 30, "mem_max_stream_bytes": 1 << 20, "max_bytes_required": True,
    }  # fmt: skip
    assert (found["nats"]["cluster_traffic"], found["nats"]["tags"]) == ("owner", ["a", "b"])
    assert 86_000 < found["exp"] - found["iat"] <= 86_400
    assert json.loads(auth("info", "NEW", "-j")[1]) == {**found, "token": store.operator("OP").account("NEW").token}


def test_an_account_has_no_limits_no_jetstream_and_no_bearer_tokens_by_default(auth: Run, store: NscStore) -> None:
    assert auth("add", "NEW", "--defaults", "-j")[0] == 0
    assert claims(store, "NEW")["nats"]["limits"] == {
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1,
        "disallow_bearer": True,
    }  # fmt: skip


def test_an_account_is_signed_with_the_key_that_is_named(auth: Run, store: NscStore) -> None:
    (key,) = store.operator("OP").signing_key_names
    auth("add", "BY1", "--key", key)
    auth("add", "BY2", "--key", store.operator("OP").subject)
    assert [claims(store, name)["iss"] for name in ("BY1", "BY2")] == [key, store.operator("OP").subject]


def test_an_edit_changes_what_is_given_and_keeps_unknown_claims(auth: Run, store: NscStore) -> None:
    operator = store.operator("OP")
    account = operator.account("APP")
    account.nats["own"] = {"kept": 1}
    account.nats["limits"]["conn"] = 3
    account.sign()
    store.save(operator)
    assert auth("edit", "APP", "--subscriptions", "9", "--tags", "x", "--jetstream")[0] == 0
    assert auth("edit", account.subject, "--no-tags", "x", "--js-streams", "4")[0] == 0
    body = claims(store)["nats"]
    assert (body["own"], body["limits"]["conn"], body["limits"]["subs"]) == ({"kept": 1}, 3, 9)
    assert (body["limits"]["disk_storage"], body["limits"]["streams"], "tags" in body) == (1 << 30, 4, False)
    assert auth("edit", "APP", "--no-jetstream", "--no-bearer")[0] == 0
    limits = claims(store)["nats"]["limits"]
    assert ("disk_storage" in limits, "streams" in limits, limits["disallow_bearer"]) == (False, False, True)


def test_accounts_are_listed(auth: Run) -> None:
    code, out, _ = auth("ls", "OP")
    assert (code, re.findall(r"│ (\w+) +│ A", out)) == (0, ["APP", "SYSTEM"])
    assert auth("ls", "--names")[1] == "APP\nSYSTEM\n"
    assert {one["name"]: one["system"] for one in auth("ls", "-j").json} == {"APP": False, "SYSTEM": True}


def test_an_account_is_removed_with_its_keys_after_consent(auth: Run, store: NscStore) -> None:
    subject = claims(store)["sub"]
    assert auth("rm", "APP")[0] == 2
    assert store.key_path(subject).exists()
    assert auth("rm", "APP", "--force")[:2] == (0, "Removed account APP\n")
    assert not store.key_path(subject).exists()
    assert auth("rm", "SYSTEM", "--force")[0] == 2


# -- exports and imports


def test_exports_are_added_edited_shown_and_removed(auth: Run, store: NscStore) -> None:
    words = ("--description", "d", "--url", "http://x", "--token-position", "2", "--advertise")
    assert auth("exports", "add", "e1", "ex.*", "APP", *words)[0] == 0
    assert auth("exports", "add", "s1", "svc", "APP", "--service", "-j")[0] == 0
    assert claims(store)["nats"]["exports"] == [
        {
            "name": "e1", "subject": "ex.*", "type": "stream", "account_token_position": 2, "advertise": True,
            "description": "d", "info_url": "http://x",
        },
        {"name": "s1", "subject": "svc", "type": "service"},
    ]  # fmt: skip
    page = auth("exp", "info", "ex.*", "APP")[1]
    assert re.search(r"Kind: Stream\n(.*\n)*.*Account Token Position: 2\n *Advertised: true\n", page)
    assert auth("e", "edit", "ex.*", "APP", "--description", "")[0] == 0
    assert "description" not in claims(store)["nats"]["exports"][0]
    assert auth("e", "edit", "ex.*", "APP", "--no-advertise", "--url", "http://y")[0] == 0
    assert [one["subject"] for one in json.loads(auth("exports", "ls", "APP", "-j")[1])] == ["ex.*", "svc"]
    assert "No Exports defined" in auth("exports", "ls", "SYSTEM")[1]
    assert auth("exports", "rm", "svc", "APP")[0] == 2
    assert auth("exports", "rm", "svc", "APP", "--force")[0] == 0
    (left,) = claims(store)["nats"]["exports"]
    assert (left["info_url"], "advertise" in left) == ("http://y", False)


def test_imports_are_added_edited_shown_and_removed(auth: Run, store: NscStore) -> None:
    source = claims(store, "SYSTEM")["sub"]
    assert auth("imports", "add", "i1", "ex.a", "APP", "--source", "SYSTEM", "--local", "l.a", "--traceable")[0] == 0
    assert auth("imp", "add", "i2", "svc", "APP", "--source", source, "--service", "--share")[0] == 0
    assert claims(store)["nats"]["imports"] == [
        {
            "name": "i1", "subject": "ex.a", "account": source, "local_subject": "l.a", "type": "stream",
            "allow_trace": True,
        },
        {
            "name": "i2", "subject": "svc", "account": source, "local_subject": "svc", "type": "service", "share": True,
        },
    ]  # fmt: skip
    page = auth("i", "info", "l.a", "APP")[1]
    assert re.search(rf"From Account: SYSTEM \({source}\)\n *Local Subject: l\.a\n", page)
    assert auth("imports", "edit", "l.a", "APP", "--local", "m.a", "--no-traceable")[0] == 0
    assert auth("imports", "edit", "svc", "APP", "--traceable")[0] == 2
    assert "│ i1   │ Stream  │ SYSTEM │ m.a " in auth("imports", "ls", "APP", "OP")[1]
    assert auth("imports", "rm", "svc", "APP", "--force")[0] == 0
    assert [one["local_subject"] for one in claims(store)["nats"]["imports"]] == ["m.a"]


def test_older_imports_are_known_by_their_subject_here(auth: Run, store: NscStore) -> None:
    operator = store.operator("OP")
    account = operator.account("APP")
    source = operator.account("SYSTEM").subject
    account.nats["imports"] = [
        {"name": "s", "subject": "a.b", "account": source, "to": "pre", "type": "stream"},
        {"name": "q", "subject": "here", "account": source, "to": "there", "type": "service"},
    ]
    account.sign()
    store.save(operator)
    assert re.search(r"Remote Subject: a\.b\n", auth("imports", "info", "pre.a.b", "APP")[1])
    assert re.search(r"Remote Subject: there\n", auth("imports", "info", "here", "APP")[1])
    assert auth("imports", "edit", "here", "APP", "--local", "new")[0] == 0
    changed = claims(store)["nats"]["imports"][1]
    assert (changed["subject"], changed["local_subject"], "to" in changed) == ("there", "new", False)


def test_a_bucket_is_exported_and_imported(auth: Run, store: NscStore) -> None:
    assert "Exported Service Subject: $KV.B.>" in auth("exports", "kv", "B", "APP")[1]
    auth("add", "OTHER", "--defaults")
    assert auth("imports", "kv", "B", "js.app", "APP", "OTHER")[0] == 0
    local = [one["local_subject"] for one in claims(store, "OTHER")["nats"]["imports"]]
    assert local == [
        "js.app.STREAM.INFO.KV_B", "js.app.DIRECT.GET.KV_B.$KV.B.>", "js.app.CONSUMER.CREATE.KV_B.>",
        "js.app.$KV.B.>", "_INBOX.KV_B.>",
    ]  # fmt: skip
    exported = {(one["subject"], one["type"]) for one in claims(store)["nats"]["exports"]}
    assert exported == {(one["subject"], one["type"]) for one in claims(store, "OTHER")["nats"]["imports"]}


# -- signing keys


def test_signing_keys_have_roles(auth: Run, store: NscStore) -> None:
    words = (
        "--description", "d", "--subscriptions", "3", "--payload", "1KB", "--bearer", "--locale", "Europe/Berlin",
        "--connection", "nats", "--connection", "wsleaf", "--pub-allow", "a.>,b", "--sub-deny", "c",
    )  # fmt: skip
    code, out, err = auth("keys", "add", "APP", "reader", *words)
    assert (code, err) == (0, "")
    (scope,) = claims(store)["nats"]["signing_keys"]
    assert (scope["kind"], scope["role"], scope["description"]) == ("user_scope", "reader", "d")
    assert scope["template"] == {
        "pub": {"allow": ["a.>", "b"]}, "sub": {"deny": ["c"]}, "subs": 3, "data": -1, "payload": 1024,
        "bearer_token": True, "times_location": "Europe/Berlin",
        "allowed_connection_types": ["STANDARD", "LEAFNODE_WS"],
    }  # fmt: skip
    assert scope["key"] in out
    assert json.loads(auth("sk", "info", "APP", "reader", "-j")[1])["scope"] == scope
    plain = re.search(r"Added signing key: (A\w+)", auth("keys", "add", "APP", "--unscoped")[1])
    assert plain is not None
    assert [one["role"] for one in json.loads(auth("keys", "ls", "APP", "-j")[1])] == ["reader", ""]
    assert re.search(r"│ reader │ d +│ +3 │ +2 │ +1 ", auth("keys", "ls", "APP")[1])
    assert "Signing Key A" in auth("keys", "info", "APP", plain[1])[1]
    assert store.key_path(plain[1]).exists()
    assert auth("keys", "rm", "APP", "--key", plain[1])[0] == 2
    assert auth("keys", "rm", "APP", "--key", plain[1], "--force")[0] == 0
    assert auth("keys", "rm", "APP", "--key", "reader", "-f", "-j")[0] == 0
    assert not store.key_path(plain[1]).exists()
    assert "signing_keys" not in claims(store)["nats"]


def test_removing_a_key_names_the_users_that_it_has_signed(auth: Run, store: NscStore) -> None:
    auth("keys", "add", "APP", "reader")
    operator = store.operator("OP")
    operator.account("APP").add_user("bob", "reader")
    store.save(operator)
    assert "which has signed 1 user (bob)" in auth("keys", "rm", "APP", "--key", "reader")[2]


# -- mappings


def test_mappings_are_added_shown_and_removed(auth: Run, store: NscStore, tmp_path: Path) -> None:
    page = auth("mappings", "add", "APP", "a.*", "b.{{wildcard(1)}}", "40")[1]
    assert re.search(r"Source: a\.\*\n *Target: b\.\{\{wildcard\(1\)\}\}\n *Weight: 40\n *Total weight: 40\n", page)
    assert auth("m", "add", "APP", "a.*", "c.{{wildcard(1)}}", "60")[0] == 0
    assert auth("map", "add", "APP", "d", "e", "100", "C1", "-j")[0] == 0
    assert claims(store)["nats"]["mappings"] == {
        "a.*": [{"subject": "b.{{wildcard(1)}}", "weight": 40}, {"subject": "c.{{wildcard(1)}}", "weight": 60}],
        "d": [{"subject": "e", "weight": 100, "cluster": "C1"}],
    }
    assert json.loads(auth("mapping", "info", "APP", "d", "-j")[1]) == {
        "d": [{"Subject": "e", "Weight": 100, "Cluster": "C1"}]
    }
    assert re.search(r"│ d +│ e +│ +100 │ C1 +│", auth("mappings", "ls", "APP")[1])
    assert auth("mappings", "rm", "APP", "d")[:2] == (0, "Deleted mapping {d}\n")
    for name, text in (("m.json", '{"d": [{"subject": "f"}]}'), ("m.yaml", "a.*:\n  - {subject: g.$1, weight: 5}\n")):
        (tmp_path / name).write_text(text)
        assert auth("mappings", "add", "APP", "--config", name)[0] == 0
    assert claims(store)["nats"]["mappings"] == {
        "a.*": [{"subject": "g.$1", "weight": 5}],
        "d": [{"subject": "f", "weight": 100}],
    }
    assert "No mappings defined" in auth("mappings", "ls", "SYSTEM")[1]
    assert "No mappings defined" in auth("mappings", "info", "SYSTEM")[1]


# -- bad input


BAD = Path(__file__).with_name("account_errors.txt").read_text().splitlines()[1:]


@pytest.mark.parametrize("row", BAD)
def test_bad_input_changes_nothing(auth: Run, store: NscStore, row: str) -> None:
    line, code, text = row.split("  →  ")
    if line.startswith("mappings rm"):
        auth("mappings", "add", "APP", "other", "x")
    before = files(store)
    done = auth(*shlex.split(line))
    assert (done[0], text in done[2]) == (int(code), True), done[2]
    assert files(store) == before


@pytest.mark.parametrize(
    "text",
    [
        "[]", "{}", '{"a": []}', '{"a": ["b"]}', '{"a": [{"weight": 5}]}', '{"a": [{"subject": "b", "weight": 0}]}',
        '{"a": [{"subject": "b", "more": 1}]}',
        '{"a": [{"subject": "b.{{wildcard(1)}}"}]}', '{"a": [{"subject": "b", "cluster": 5}]}', "{",
        '{"a": [{"subject": "b", "weight": 60}, {"subject": "c", "weight": 60}]}',
    ],
)  # fmt: skip
def test_a_file_of_mappings_with_a_fault_changes_nothing(auth: Run, store: NscStore, text: str, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(text)
    before = files(store)
    assert (auth("mappings", "add", "APP", "--config", "m.json")[0], files(store)) == (2, before)


def test_what_exists_is_not_added_again(auth: Run, store: NscStore) -> None:
    for words in (
        ("exports", "add", "x", "a", "APP"), ("imports", "add", "x", "b", "APP", "--source", "SYSTEM"),
        ("mappings", "add", "APP", "c", "d", "10"),
    ):  # fmt: skip
        assert auth(*words)[0] == 0
        before = files(store)
        assert (auth(*words)[0], files(store)) == (4, before), words


# -- servers


@pytest.mark.reference
def test_an_account_is_pushed_and_queried(auth: Run, store: NscStore, natsctl: Run, tmp_path: Path) -> None:
    operator = store.operator("OP")
    system = operator.account("SYSTEM")
    admin = system.add_user("admin")
    store.save(operator)
    Path("admin.creds").write_text(admin.credentials())
    conf = tmp_path / "nats-server.conf"
    conf.write_text(f'''operator: {operator.token}
resolver: {{ type: full, dir: "{tmp_path / "jwt"}" }}
resolver_preload: {{ {system.key.public}: {system.token} }}
''')
    with ServerProcess(tmp_path / "server", "reference", "-c", str(conf)) as server:
        login = ("--server", server.url, "--creds", "admin.creds")
        assert auth("query", "APP", *login)[0] == 3
        code, out, err = auth("push", "APP", *login)
        assert (code, "Success 1 Failed 0 Expected 1" in out) == (0, True), err
        auth("edit", "APP", "--connections", "7")
        assert json.loads(auth("push", "APP", "-j", *login)[1])["failed"] == {}
        assert json.loads(auth("query", "APP", "app.jwt", "-j", *login)[1])["nats"]["limits"]["conn"] == 7
        assert Path("app.jwt").read_text() == store.operator("OP").account("APP").token
        assert "Connections: 7" in auth("pull", claims(store)["sub"], *login)[1]
        assert auth("push", "APP", "--dry-run", *login)[0] == 0
        user = (operator := store.operator("OP")).account("APP").add_user("bob")
        store.save(operator)
        Path("bob.creds").write_text(user.credentials())
        assert auth("push", "APP", "--server", server.url, "--creds", "bob.creds")[0] == 6


def test_a_refusal_of_a_server_is_its_reason() -> None:
    for raw, reason in (
        ({"error": {"code": 500, "description": "no"}}, "no"), ({"data": {"code": 500, "message": "bad"}}, "bad"),
        ({"data": {"code": 200, "message": "jwt updated"}}, ""),
    ):  # fmt: skip
        assert reason in (found := refusal(ServerAnswer({"server": {"name": "n"}, **raw})))
        assert bool(found) is bool(reason)
