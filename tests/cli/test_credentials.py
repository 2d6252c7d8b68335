"""Commands that prove who they are: creds files, nkeys, JWTs with seeds and bearers."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from natsctl.cli.main import run as run_main
from natsctl.server.conf.config import apply
from natsctl.server.conf.syntax import load_text
from natsctl.server.instance import ServerThread
from natsctl.server.options import ServerOptions
from tests.support.operators import NO_JETSTREAM_LIMITS, Key, Operator, parse_creds

NOT_AUTHORISED = 6
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def operator() -> Operator:
    operator = Operator()
    operator.account("A", limits=NO_JETSTREAM_LIMITS)
    return operator


def serve(text: str, folder: Path) -> ServerThread:
    told = f'listen: "127.0.0.1:-1"\njetstream {{ store_dir: "{folder}" }}\n'
    return ServerThread(apply(load_text(told + text, {}), ServerOptions()))


@pytest.fixture(scope="module")
def operated(operator: Operator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve(operator.conf(), tmp_path_factory.mktemp("operated")) as thread:
        yield thread.url


@pytest.fixture
def natsctl(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run_main(list(words))
        return (code, *capsys.readouterr())

    return run


def test_creds_file_works_through_the_environment_and_a_context(
    operated: str, operator: Operator, natsctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    creds = tmp_path / "alice.creds"
    creds.write_text(operator.user(operator.accounts["A"]).creds)
    monkeypatch.setenv("NATS_URL", operated)
    monkeypatch.setenv("NATS_CREDS", str(creds))
    assert natsctl("str", "ls")[0] == 0
    monkeypatch.delenv("NATS_CREDS")
    monkeypatch.delenv("NATS_URL")
    folder = Path.home() / ".config" / "nats" / "context"
    folder.mkdir(parents=True)
    (folder / "c.json").write_text(json.dumps({"url": operated, "creds": str(creds)}))
    assert natsctl("--context", "c", "str", "ls")[0] == 0


def test_jwt_with_seed_and_bearer_let_commands_in(
    operated: str, operator: Operator, natsctl: Run, tmp_path: Path
) -> None:
    jwt, seed = parse_creds(operator.user(operator.accounts["A"]).creds)
    bearer = operator.user(operator.accounts["A"], bearer_token=True)
    folder = Path.home() / ".config" / "nats" / "context"
    folder.mkdir(parents=True)
    for name, said in (("seeded", {"user_jwt": jwt, "user_seed": seed.decode()}), ("bearer", {"user_jwt": bearer.jwt})):
        (folder / f"{name}.json").write_text(json.dumps({"url": operated, **said}))
        assert natsctl("--context", name, "str", "ls")[0] == 0


@pytest.mark.parametrize("claims", [{"exp": 1000}, {"nbf": 1 << 40}])
def test_creds_that_are_refused_are_not_authorised(
    operated: str, operator: Operator, natsctl: Run, tmp_path: Path, claims: dict[str, Any]
) -> None:
    creds = tmp_path / "late.creds"
    user = operator.user(operator.accounts["A"], claims)
    creds.write_text(user.creds)
    code, out, err = natsctl("--server", operated, "--creds", str(creds), "str", "ls")
    assert (code, out) == (NOT_AUTHORISED, "")
    assert user.jwt not in err and user.key.seed.decode() not in err


def test_command_without_credentials_is_not_authorised(operated: str, natsctl: Run) -> None:
    code, out, err = natsctl("--server", operated, "str", "ls", "-j")
    assert (code, out) == (NOT_AUTHORISED, "")
    assert "--user" in json.loads(err)["error"]["hint"]


def test_nkey_lets_commands_in(natsctl: Run, tmp_path: Path) -> None:
    key, stranger = Key("user"), Key("user")
    (tmp_path / "user.nk").write_text(key.seed.decode())
    (tmp_path / "other.nk").write_text(stranger.seed.decode())
    with serve(f"authorization {{ users [ {{ nkey: {key.public} }} ] }}", tmp_path / "store") as thread:
        assert natsctl("--server", thread.url, "--nkey", str(tmp_path / "user.nk"), "str", "ls")[0] == 0
        code, _, _ = natsctl("--server", thread.url, "--nkey", str(tmp_path / "other.nk"), "str", "ls")
        assert code == NOT_AUTHORISED
