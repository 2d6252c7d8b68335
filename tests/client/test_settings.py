"""How flags, environment and contexts combine."""

from __future__ import annotations

import pytest

from natsctl.api.errors import UsageError
from natsctl.client.settings import Settings, combine, expand_path, from_environment


def test_the_first_source_that_says_a_value_wins() -> None:
    flags, environment, context = Settings(url="a"), Settings(url="b", ca="x"), Settings(ca="y", jetstream_domain="hub")
    combined = combine([flags, environment, context])
    assert (combined.url, combined.ca, combined.jetstream_domain) == ("a", "x", "hub")


def test_a_login_is_never_mixed_with_a_lower_one() -> None:
    combined = combine([Settings(user="ann"), Settings(), Settings(user="bob", password="secret", creds="bob.creds")])
    assert combined.user == "ann"
    assert combined.password == ""
    assert combined.creds == ""


def test_a_password_from_the_environment_completes_a_user_flag() -> None:
    assert combine([Settings(user="ann"), Settings(password="secret")]).password == "secret"


def test_a_context_login_counts_where_nothing_else_names_one() -> None:
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
