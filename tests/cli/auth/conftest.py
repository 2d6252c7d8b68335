"""Commands of `natsctl auth` in process, with a store of their own."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from natsctl.cli.main import run as run_main
from natsctl.client.auth.nsc_store import NscStore

Run = Callable[..., tuple[int, str, str]]
STORE_OF_NATS = Path(__file__).parents[2] / "client" / "auth" / "store_of_nats.json"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NscStore:
    environment = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return NscStore.of_environment(environment)


@pytest.fixture
def recorded(store: NscStore) -> NscStore:
    """The store with what nats 0.5.1 has made: see tests/client/auth/conftest.py."""
    for name, text in json.loads(STORE_OF_NATS.read_text()).items():
        path = store.stores.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return store


@pytest.fixture
def natsctl(store: NscStore, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run_main(list(words))
        return (code, *capsys.readouterr())

    return run
