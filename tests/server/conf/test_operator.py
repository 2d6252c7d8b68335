"""The keys of nats.conf for operators; texts are the reference's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natsctl.server.conf.config import apply
from natsctl.server.conf.syntax import ConfError, load_text
from natsctl.server.options import DirectoryOptions, OperatorOptions, ServerOptions
from tests.support.operators import Key, Operator, make_jwt

ESTATE = Operator()
ACCOUNT = ESTATE.account("A")
OPERATOR, SYSTEM = ESTATE.jwt(), ESTATE.system.public
PRELOADED = ESTATE.preload()
PRELOAD = "resolver_preload {\n" + "\n".join(f"{key}: {jwt}" for key, jwt in PRELOADED.items()) + "\n}\n"
GOOD = f"operator: {OPERATOR}\nsystem_account: {SYSTEM}\nresolver: MEMORY\n{PRELOAD}"


def operator_jwt(**nats: Any) -> str:
    return make_jwt("operator", ESTATE.key.public, ESTATE.key, {"name": "O"}, **nats)


def options(text: str) -> ServerOptions:
    return apply(load_text(text, {}), ServerOptions())


def operator(text: str) -> OperatorOptions:
    return options(text).operator


def test_operator_is_read_from_the_text_or_from_a_file(tmp_path: Path) -> None:
    plain, decorated = tmp_path / "plain.jwt", tmp_path / "decorated.jwt"
    plain.write_text(OPERATOR + "\n")
    decorated.write_text(f"-----BEGIN NATS OPERATOR JWT-----\n{OPERATOR}\n------END NATS OPERATOR JWT------\n")
    for said in (OPERATOR, f'"{plain}"', f'"{decorated}"', f'["{plain}"]'):
        (claims,) = operator(f"operator: {said}\nresolver: MEMORY").operators
        assert claims.sub == ESTATE.key.public
    both = operator(f'operators: ["{plain}", "{decorated}"]\nresolver: MEM').operators
    assert len(both) == 2


def test_memory_resolver_knows_what_is_preloaded() -> None:
    found = operator(GOOD)
    assert found.memory and dict(found.preload) == PRELOADED
    assert operator(f"operator: {OPERATOR}\nresolver: {{ type: mem }}").memory


def test_directory_resolvers(tmp_path: Path) -> None:
    head = f"operator: {operator_jwt(system_account=SYSTEM)}\n"
    full = 'resolver: {{ type: full, dir: "{0}", allow_delete: true, limit: 10, interval: "2m", timeout: "1.9s" }}'
    assert operator(head + full.format(tmp_path)).directory == DirectoryOptions(tmp_path, True, "rename", 10)
    hard = 'resolver: {{ type: full, dir: "{0}", allow_delete: true, hard_delete: true }}'
    assert operator(head + hard.format(tmp_path)).directory == DirectoryOptions(tmp_path, True, "remove")
    cache = 'resolver: {{ type: cache, dir: "{0}", ttl: "1h" }}'
    assert operator(head + cache.format(tmp_path)).directory == DirectoryOptions(tmp_path, False, "no", 1000, 3600.0)


def test_trusted_keys_need_no_operator() -> None:
    assert operator(f"trusted_keys: [{ESTATE.key.public}]").trusted_keys == (ESTATE.key.public,)
    assert operator(f"trusted: {ESTATE.key.public}").trusted_keys == (ESTATE.key.public,)


def test_jwts_are_in_no_repr_of_options() -> None:
    sentinel = ESTATE.user(ACCOUNT, bearer_token=True).jwt
    shown = repr(options(GOOD + f"default_sentinel: {sentinel}"))
    assert sentinel not in shown and PRELOADED[ACCOUNT.public] not in shown


WRONG: dict[str, tuple[str, int, str]] = {
    "file that is missing": ("operator: /nowhere/x.jwt", 1, "open /nowhere/x.jwt: no such file or directory"),
    "account as operator": (f"operator: {ACCOUNT.jwt(ESTATE.key)}", 1, "operator JWT: not operator claim"),
    "number": ("operator: 5", 1, "error parsing operators: unsupported type"),
    "no resolver": (f"operator: {OPERATOR}", 1, "operators require an account resolver to be configured"),
    "unknown resolver": (f"operator: {OPERATOR}\nresolver: FOO", 2, "error parsing account resolver, should be MEM or"),
    "URL": (f"operator: {OPERATOR}\nresolver: URL(ftp://x/y/)", 2, "error parsing account resolver url"),
    "URL without one": (f"operator: {OPERATOR}\nresolver: URL", 2, "error parsing account resolver url"),
    "resolver_tls": (f'{GOOD}resolver_tls {{ ca_file: "/nowhere" }}', 8, "error parsing tls config"),
    "number as resolver": (f"operator: {OPERATOR}\nresolver: 5", 2, "error parsing operator resolver, wrong type"),
    "no folder": ("resolver { type: full }", 1, "dir has no value and needs to point to a directory"),
    "full with ttl": ('resolver {\ntype: full, dir: x\nttl: "5s" }', 3, "FULL does not accept ttl"),
    "cache with interval": ('resolver { type: cache, dir: x, interval: "5s" }', 1, "CACHE does not accept sync"),
    "cache that deletes": ("resolver { type: cache, dir: x, allow_delete: true }", 1, "not accept allow_delete"),
    "hard without delete": ("resolver { type: full, dir: x, hard_delete: true }", 1, "has no effect without delete"),
    "full without system account": (
        f"operator: {OPERATOR}\nresolver {{ type: full, dir: x }}", 2, "using nats based account resolver - the system"
    ),
    "list as preload": ("resolver_preload: [a]", 1, "preload should be a map of account_public_key:account_jwt"),
    "number in preload": ("resolver_preload {\nA: 5\n}", 2, "preload map value should be a string JWT"),
    "no JWT in preload": ("resolver_preload {\nA: eyJx\n}", 2, "invalid account JWT"),
    "accounts too": (f"{GOOD}accounts {{ X {{}} }}", 8, "operators do not allow Accounts to be configured directly"),
    "users too": (
        f"{GOOD}authorization {{ users [{{user: a, password: b}}] }}", 8, "operators do not allow users to be"
    ),
    "keys too": (f"{GOOD}trusted_keys: [{ESTATE.key.public}]", 8, "conflicting options for 'TrustedKeys'"),
    "key of an account": (f"trusted_keys: [{ACCOUNT.public}]", 1, "required to be a valid public operator nkey"),
    "other system account": (
        f"operator: {operator_jwt(system_account=SYSTEM)}\nsystem_account: {ACCOUNT.public}\nresolver: MEM", 2,
        "system_account in config and operator JWT must be identical",
    ),
    "newer server": (
        f"operator: {operator_jwt(assert_server_version='2.99.0')}\nresolver: MEM", 1,
        "expected minor version 99 > server minor version 15",
    ),
    "version that is none": (
        f"operator: {operator_jwt(assert_server_version='2.x')}\nresolver: MEM", 1, "of the form <major>.<minor>"
    ),
    "pinned nonsense": (f"{GOOD}resolver_pinned_accounts: [x]", 8, 'pinned account key "x" is not a valid public'),
    "sentinel alone": (
        f"default_sentinel: {ESTATE.user(ACCOUNT, bearer_token=True).jwt}", 1, "requires operators and accounts"
    ),
    "sentinel without bearer": (
        f"{GOOD}default_sentinel: {ESTATE.user(ACCOUNT).jwt}", 8, "default sentinel must be a bearer token"
    ),
    "sentinel that is none": (f"{GOOD}default_sentinel: x", 8, "default sentinel JWT not valid"),
    "no_auth_user": (f"{GOOD}no_auth_user: x", 8, "no_auth_user not compatible with Trusted Operator"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_with_its_line(case: str) -> None:
    text, line, said = WRONG[case]
    with pytest.raises(ConfError) as error:
        options(text)
    assert str(error.value).startswith(f"nats.conf:{line}: ") and said in str(error.value)


@pytest.mark.parametrize("make", [lambda: ESTATE.user(ACCOUNT).jwt, lambda: Key("user").seed.decode()])
def test_secrets_in_the_wrong_place_are_not_repeated(make: Callable[[], str]) -> None:
    secret = make()
    for key in ("resolver_preload", "default_sentinel"):
        with pytest.raises(ConfError) as error:
            options(f"{key}: {secret}" if key == "default_sentinel" else f"{key} {{ A: {secret} }}")
        assert secret not in str(error.value)
