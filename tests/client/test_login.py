"""Settings of flags, environment and contexts, secrets, and logins."""

import base64
from pathlib import Path

import nkeys
import pytest

from natsctl.api.errors import UsageError
from natsctl.client.settings import (
    Settings,
    combine,
    credentials,
    credentials_at,
    expand_path,
    from_environment,
    resolve_either,
    resolve_text,
)
from natsctl.wire.client import ClientCredentials
from natsctl.wire.server_url import parse_server_url

JWT = "eyJ0eXAiOiJKV1QifQ.e30.c2ln"


def _seed() -> str:
    return nkeys.from_seed(nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)).seed.decode()


def _creds(path: Path) -> Path:
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\n{JWT}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{_seed()}\n------END USER NKEY SEED------\n"
    )
    return path


def test_settings_give_the_credentials_of_one_kind_of_login(tmp_path: Path) -> None:
    (tmp_path / "a.nk").write_text(f"# key of a\n{_seed()}\n")
    for settings, expected in (
        (Settings(user="a", password="b", creds="missing"), ClientCredentials("a", "b")),
        (Settings(creds=str(_creds(tmp_path / "a.creds"))), ClientCredentials(jwt=JWT, seed=_seed())),
        (Settings(user_jwt=JWT), ClientCredentials(jwt=JWT)),
        (Settings(nkey=str(tmp_path / "a.nk")), ClientCredentials(seed=_seed())),
    ):
        assert credentials(settings) == expected


def test_a_login_of_the_settings_comes_before_that_of_the_url() -> None:
    url = parse_server_url("nats://ann:p%40w@127.0.0.1")
    assert credentials_at(url, ClientCredentials()) == ClientCredentials("ann", "p@w")
    assert credentials_at(url, ClientCredentials(token="t")) == ClientCredentials(token="t")
    assert credentials_at(parse_server_url("nats://s3cret@127.0.0.1"), ClientCredentials()) == ClientCredentials(
        token="s3cret"
    )


def test_secrets_may_be_pointed_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_A", "t")
    (tmp_path / "password").write_text("p\n")
    assert credentials(Settings(token="env://TOKEN_OF_A")) == ClientCredentials(token="t")
    pointed = Settings(user="a", password=f"file://{tmp_path}/password")
    assert credentials(pointed).password == "p"
    data = "data:;base64," + base64.b64encode(_seed().encode()).decode()
    assert credentials(Settings(nkey=data)) == ClientCredentials(seed=_seed())


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (Settings(creds="/nowhere/a.creds"), "creds: No such file"),
        (Settings(token="env://NOT_SET_ANYWHERE"), "NOT_SET_ANYWHERE is not set"),
        (Settings(token="op://vault/item"), "needs op: not found on PATH"),
        (Settings(nkey="data:;base64,***"), "not base64"),
        (Settings(nkey="data:;base64,aGVsbG8="), "no NKey seed"),
        (Settings(nkey="data:;base64," + base64.b64encode(b"SU" + b"1" * 56).decode()), "not valid"),
    ],
)
def test_an_unusable_secret_is_a_usage_error_by_name(settings: Settings, text: str) -> None:
    with pytest.raises(UsageError, match=text.replace("/", r"\/")):
        credentials(settings)


def test_a_certificate_without_its_key_is_a_usage_error(tmp_path: Path) -> None:
    from natsctl.client.settings import tls_context

    with pytest.raises(UsageError, match="go together"):
        tls_context(Settings(cert="a.pem"), ("nats://a:1",))
    with pytest.raises(UsageError, match="TLS"):
        tls_context(Settings(ca=str(tmp_path / "missing.pem")), ("nats://a:1",))


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


def test_a_jwt_may_be_a_text_or_the_path_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "user.jwt").write_text("eyJ\n")
    assert resolve_either(str(tmp_path / "user.jwt"), "jwt", "ey") == "eyJ\n"
    assert resolve_either("eyJ", "jwt", "ey") == "eyJ"
    with pytest.raises(UsageError, match="jwt: "):
        resolve_either(str(tmp_path / "nope"), "jwt", "ey")


def test_the_first_source_that_says_a_value_wins() -> None:
    flags, environment, context = Settings(url="a"), Settings(url="b", ca="x"), Settings(ca="y", jetstream_domain="hub")
    combined = combine([flags, environment, context])
    assert (combined.url, combined.ca, combined.jetstream_domain) == ("a", "x", "hub")


def test_a_login_is_never_mixed_with_a_lower_one_but_for_a_password_of_the_environment() -> None:
    context = Settings(user="bob", password="secret", creds="bob.creds")
    assert combine([Settings(user="ann"), Settings(), context]) == Settings(user="ann")
    assert combine([Settings(user="ann"), Settings(password="secret")]).password == "secret"
    assert combine([Settings(url="x"), Settings(), Settings(creds="a.creds")]).creds == "a.creds"


def test_environment_variables_are_read_by_their_names() -> None:
    said = from_environment({"NATS_URL": "u", "NATS_USER": "n", "NATS_CA": "ca", "NATS_TIMEOUT": "250ms"})
    assert (said.url, said.user, said.ca, said.timeout_s) == ("u", "n", "ca", 0.25)


def test_a_bad_timeout_in_the_environment_is_told_by_name() -> None:
    with pytest.raises(UsageError, match="NATS_TIMEOUT"):
        from_environment({"NATS_TIMEOUT": "soon"})
    for text in ("0", "-5s"):
        with pytest.raises(UsageError, match=f"NATS_TIMEOUT: expected a duration above zero such as 5s, not '{text}'"):
            from_environment({"NATS_TIMEOUT": text})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("~/a.creds", "/home/ann/a.creds"),
        ("$DIR/a", "/x/a"),
        ("${DIR}b", "/xb"),
        ("$MISSING/a", "$MISSING/a"),
        ("a~b", "a~b"),
    ],
)
def test_paths_expand_home_and_variables(text: str, expected: str) -> None:
    assert expand_path(text, {"HOME": "/home/ann", "DIR": "/x"}) == expected
