"""`natsctl auth nkey`, `nuid` and `jwt decode`: keys in files, signatures, sealed files, and every kind of JWT."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from natsctl.client.auth.claims import add_tags, new_claims, sign
from natsctl.client.auth.keys import KINDS, KeyPair, generate_key, parse_key
from natsctl.client.auth.nsc_store import NscStore
from natsctl.client.auth.operators import new_operator
from tests.cli.auth.test_operators import nats, needs_nats
from tests.support.commands import Run


@pytest.mark.parametrize("kind", [*KINDS, "x25519", "USER"])
def test_a_key_is_made_and_shown(natsctl: Run, kind: str) -> None:
    code, out, err = natsctl("auth", "nkey", "gen", kind, "--public")
    seed, public = out.split()
    assert (code, err) == (0, "") and parse_key(seed).public == public
    assert natsctl("auth", "nkey", "gen", kind, "--output", "key.nk") == (0, "", "")
    assert Path("key.nk").stat().st_mode & 0o777 == 0o600
    key = parse_key(Path("key.nk").read_text())
    assert natsctl("auth", "nk", "show", "key.nk")[1] == f"{key.public}\n"
    assert json.loads(natsctl("auth", "nkey", "show", "key.nk", "-j")[1]) == {"kind": key.kind, "key": key.public}
    code, _, err = natsctl("auth", "nkey", "gen", kind, "--output", "key.nk")
    assert code == 4 and "--force" in err and parse_key(Path("key.nk").read_text()).public == key.public
    made = json.loads(natsctl("auth", "nkey", "gen", kind, "--output", "key.nk", "--force", "-j")[1])
    assert made == {"kind": key.kind, "key": parse_key(Path("key.nk").read_text()).public, "file": "key.nk"}


def test_the_source_of_entropy_makes_the_key(natsctl: Run) -> None:
    Path("random").write_bytes(bytes(range(40)))
    lines = {natsctl("auth", "nkey", "gen", "user", "--entropy", "random")[1] for _ in range(2)}
    assert len(lines) == 1
    Path("random").write_bytes(b"short")
    code, _, err = natsctl("auth", "nkey", "gen", "user", "--entropy", "random")
    assert code == 2 and "a key needs 32 bytes, and it has 5" in err
    assert natsctl("auth", "nkey", "gen", "user", "--entropy", "none")[0] == 2
    assert natsctl("auth", "nkey", "gen", "queen")[0] == 2


def test_a_signature_is_verified_with_either_key(natsctl: Run) -> None:
    natsctl("auth", "nkey", "gen", "user", "--output", "user.nk", "--public")
    Path("public").write_text(natsctl("auth", "nkey", "show", "user.nk")[1])
    Path("data").write_bytes(bytes(range(256)))
    Path("sig").write_text(natsctl("auth", "nkey", "sign", "data", "user.nk")[1])
    for key in ("user.nk", "public"):
        assert natsctl("auth", "nkey", "verify", "data", "sig", key) == (0, "Verified OK\n", "")
    Path("data").write_bytes(b"other")
    assert natsctl("auth", "nkey", "verify", "data", "sig", "public")[0] == 1
    Path("sig").write_text("!")
    assert natsctl("auth", "nkey", "verify", "data", "sig", "public")[0] == 1
    code, _, err = natsctl("auth", "nkey", "sign", "data", "public")
    assert code == 2 and "needs the private key" in err
    code, _, err = natsctl("auth", "nkey", "show", "data")
    assert code == 2 and "data: no nkey in it" in err


@pytest.mark.parametrize("b64", ["--b64", "--no-b64"])
def test_what_is_sealed_is_opened(natsctl: Run, b64: str) -> None:
    public = {}
    for name in ("a", "b"):
        natsctl("auth", "nkey", "gen", "curve", "--output", f"{name}.xk")
        public[name] = natsctl("auth", "nkey", "show", f"{name}.xk")[1].strip()
    Path("data").write_bytes(bytes(range(256)))
    assert natsctl("auth", "nkey", "seal", "data", "a.xk", public["b"], "--output", "sealed", b64) == (0, "", "")
    assert natsctl("auth", "nkey", "unseal", "sealed", "b.xk", public["a"], "--output", "out", b64) == (0, "", "")
    assert Path("out").read_bytes() == bytes(range(256)) and Path("out").stat().st_mode & 0o777 == 0o600
    assert natsctl("auth", "nkey", "open", "sealed", "b.xk", public["b"], b64)[0] == 1
    other = "--no-b64" if b64 == "--b64" else "--b64"
    code, out, err = natsctl("auth", "nkey", "open", "sealed", "b.xk", public["a"], other)
    assert (code, out) == (1, "") and "b64" in err
    code, _, err = natsctl("auth", "nkey", "seal", "data", "a.xk", "XNOKEY")
    assert code == 2 and "begins with X" in err


@needs_nats
def test_keys_signatures_and_sealed_files_are_shared_with_nats(natsctl: Run) -> None:
    Path("data").write_text("hello")
    nats("nkey", "gen", "user", "--output", "theirs.nk")
    natsctl("auth", "nkey", "gen", "user", "--output", "ours.nk")
    assert natsctl("auth", "nkey", "sign", "data", "theirs.nk")[1] == nats("nkey", "sign", "data", "theirs.nk")
    Path("sig").write_text(natsctl("auth", "nkey", "sign", "data", "ours.nk")[1].strip())
    assert nats("nkey", "verify", "data", "sig", "ours.nk") == "Verified OK\n"
    nats("nkey", "gen", "curve", "--output", "theirs.xk")
    natsctl("auth", "nkey", "gen", "curve", "--output", "ours.xk")
    theirs, ours = (nats("nkey", "show", name).strip() for name in ("theirs.xk", "ours.xk"))
    Path("sealed").write_text(nats("nkey", "seal", "data", "theirs.xk", ours))
    assert natsctl("auth", "nkey", "unseal", "sealed", "ours.xk", theirs)[1] == "hello\n"
    natsctl("auth", "nkey", "seal", "data", "ours.xk", theirs, "--output", "sealed")
    assert nats("nkey", "unseal", "sealed", "theirs.xk", ours) == "hello\n"


def test_nuids_are_unique(natsctl: Run) -> None:
    made = {natsctl("auth", "nuid", "gen")[1] for _ in range(20)} | {
        json.loads(natsctl("auth", "nuid", "gen", "-j")[1])["nuid"]
    }
    assert len(made) == 21 and all(one.strip().isalnum() and len(one.strip()) == 22 for one in made)


ACCOUNT, USER, SERVER = (generate_key(kind) for kind in ("account", "user", "server"))


def _page(natsctl: Run, word: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("TESTING", "true")
    code, out, err = natsctl("jwt", "decode", word)
    assert (code, err) == (0, "")
    return dict(json.loads(out))


def _jwt(kind: str, signer: KeyPair, subject: str, times: dict[str, Any] | None = None, /, **body: Any) -> str:
    return sign({"name": "N", "sub": subject, **(times or {}), "nats": {**body, "type": kind}}, signer)[0]


def test_the_whole_claims_are_shown_as_json(natsctl: Run) -> None:
    token = _jwt("user", ACCOUNT, USER.public, pub={"allow": ["a.>"]}, of_tomorrow=[1])
    code, out, _ = natsctl("jwt", "d", token, "-j")
    claims = json.loads(out)
    assert code == 0 and claims["iss"] == ACCOUNT.public and claims["nats"] == {
        "pub": {"allow": ["a.>"]}, "of_tomorrow": [1], "type": "user", "version": 2,
    }  # fmt: skip


def test_the_jwt_of_a_creds_file_is_shown_without_its_seed(natsctl: Run, recorded: NscStore, tmp_path: Path) -> None:
    user = recorded.operator("RECORDED").account("ORDERS").user("app")
    for text in (user.credentials(), user.token + "\n", user.credentials().replace("\n", "\r\n")):
        Path("app.creds").write_text(text, newline="")
        code, out, _ = natsctl("jwt", "decode", "app.creds")
        assert code == 0 and out.startswith(f"User app ({user.subject})\n")
        assert "Allow: orders.>" in out and "Max Payload: 1,048,576" in out
        assert user.key.seed not in out


def test_operators_and_accounts_have_pages(natsctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = new_operator("O")
    account = operator.add_account("A")
    key = account.add_signing_key({"role": "service", "template": {}})
    account.nats.update(
        {
            "exports": [{"subject": "svc.>", "type": "service", "token_req": True}],
            "imports": [{"subject": "x", "account": ACCOUNT.public, "type": "stream", "name": "x"}],
            "mappings": {"a": [{"subject": "b", "weight": 20}, {"subject": "c", "cluster": "C1"}]},
            "default_permissions": {"pub": {"deny": ["secret"]}, "sub": {}},
            "authorization": {"auth_users": [USER.public], "allowed_accounts": ["*"]},
        }
    )
    account.nats["limits"] |= {"disk_storage": -1, "mem_storage": 1 << 20, "streams": 10, "consumer": -1}
    add_tags(account.claims, ["t"])
    account.sign()
    page = _page(natsctl, account.token, monkeypatch)
    assert page["Configuration"]["JetStream"] == "true" and page["Configuration"]["Tags"] == "t"
    assert page["Additional Settings"] == {
        "Signing Keys": f"{key.public} (scoped: service)", "Mappings": "a -> b (20%)",
    }  # fmt: skip
    assert page["Exports and Imports"] == {
        "Exported Subjects": "svc.> (service, token required)",
        "Imported Subjects": f"x from {ACCOUNT.public} (stream)",
    }
    assert page["Account Default Limits"]["Max File Storage"] == "unlimited"
    assert page["Account Default Limits"]["Max Memory Storage"].startswith("1")
    assert page["External Authorization"] == {"Auth Users": USER.public, "Allowed Accounts": "*"}
    assert page["Publish"] == {"Deny": "secret"} and page["JetStream Settings"] == {"Cluster Traffic": "system"}
    account.nats["limits"] |= {"mem_storage": -1, "streams": -1}
    account.sign()
    page = _page(natsctl, account.token, monkeypatch)
    assert page["Account Default Limits"] == {"header": ["Unlimited"]}
    page = _page(natsctl, operator.token, monkeypatch)
    assert page["Configuration"]["System Account"] == operator.account("SYSTEM").subject
    other, _ = sign(operator.claims, operator.signing_keys[0])
    assert _page(natsctl, other, monkeypatch)["Additional Settings"]["Issuer"] == operator.signing_keys[0].public


def test_users_show_what_binds_them(natsctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    scoped = _jwt("user", generate_key("account"), USER.public, issuer_account=ACCOUNT.public)
    page = _page(natsctl, scoped, monkeypatch)
    assert page["Configuration"]["Scoped"] == "true"
    assert page["Limits"] == {"header": ["Set by the signing key scope in the account JWT"]}
    claims = new_claims("user", USER.public, "U")
    claims["nats"] |= {"proxy_required": True, "resp": {"max": 5, "ttl": 60_000_000_000}}
    assert _page(natsctl, sign(claims, ACCOUNT)[0], monkeypatch)["Additional Settings"] == {
        "Proxy Required": "true", "Allow Responses": "5 messages, expires 1m0s",
    }  # fmt: skip
    for given, shown in (
        ({}, "1 messages, expires 2m0s"),
        ({"max": -1, "ttl": -1}, "unlimited messages, expires never"),
    ):
        claims["nats"]["resp"] = given
        page = _page(natsctl, sign(claims, ACCOUNT)[0], monkeypatch)
        assert page["Additional Settings"]["Allow Responses"] == shown


def test_activations_authorizations_and_other_kinds_have_pages(natsctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    activation = _jwt("activation", ACCOUNT, generate_key("account").public, subject="o.v", kind="service", tags=["t"])
    shown = _page(natsctl, activation, monkeypatch)["Configuration"]
    assert (shown["Import Subject"], shown["Import Type"], shown["Tags"]) == ("o.v", "service", "t")
    request = _jwt(
        "authorization_request", SERVER, ACCOUNT.public, user_nkey=USER.public,
        server_id={"name": "s", "id": SERVER.public}, client_info={"id": 7}, connect_opts={"protocol": 1, "user": "a"},
        client_tls={"version": "1.3"},
    )  # fmt: skip
    page = _page(natsctl, request, monkeypatch)
    assert page["Header"].startswith("Authorization Request N (")
    assert (page["Server"]["Name"], page["Client"], page["TLS"]) == ("s", {"Id": "7"}, {"Version": "1.3"})
    assert page["Connect Options"] == {"Username": "a", "Protocol": "1"}
    response = _jwt("authorization_response", ACCOUNT, USER.public, {"aud": SERVER.public}, jwt="x", error="no")
    page = _page(natsctl, response, monkeypatch)
    assert page["Configuration"]["User JWT Issued"] == "true" and page["Token"]["Audience"] == SERVER.public
    assert _page(natsctl, _jwt("mine", ACCOUNT, "x", nothing=1), monkeypatch)["Header"] == "Mine N (x)"


def test_what_is_wrong_with_claims_is_listed_and_no_error(natsctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    now = int(time.time())
    token = _jwt("user", ACCOUNT, USER.public, {"exp": now - 10, "nbf": now + 1000}, pub={"allow": ["a..b"]})
    issues = _page(natsctl, token, monkeypatch)["Validation Issues"]["header"]
    assert issues[:2] == ["claim is expired", "claim is not yet valid"] and "consecutive" in issues[2]


@pytest.mark.parametrize(
    ("word", "code", "message"),
    [
        ("notajwt", 2, '"notajwt" is neither a file nor a JWT'), ("x" * 5000, 2, "neither a file nor a JWT"),
        ("eyJ.eyJ.x", 1, "invalid JWT"), ("plain.txt", 2, "plain.txt does not contain a JWT"),
        (".", 2, "neither a file nor a JWT"), ("", 2, "JWT is empty"),
    ],
)  # fmt: skip
def test_what_is_no_jwt_is_an_error(natsctl: Run, word: str, code: int, message: str) -> None:
    Path("plain.txt").write_text("hello world\n")
    assert natsctl("jwt", "decode", word)[0] == code
    assert message in natsctl("jwt", "decode", word)[2]


def test_a_seed_that_was_mistaken_for_a_jwt_is_not_repeated(natsctl: Run) -> None:
    seed = generate_key("user").seed
    code, out, err = natsctl("jwt", "decode", seed)
    assert (code, out) == (2, "") and "private key" in err and seed not in err


def test_a_jwt_that_another_key_signed_or_with_claims_of_a_wrong_type_is_refused(natsctl: Run) -> None:
    head, body, signature = _jwt("user", ACCOUNT, USER.public).split(".")
    code, out, err = natsctl("jwt", "decode", f"{head}.{body}.{signature[::-1]}", "-j")
    assert (code, out) == (1, "") and "signature" in json.loads(err)["error"]["description"]
    code, _, err = natsctl("jwt", "decode", _jwt("user", ACCOUNT, USER.public, subs="many"))
    assert code == 1 and "invalid claims" in err
