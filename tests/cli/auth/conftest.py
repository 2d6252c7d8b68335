"""Commands of `natsctl auth` in process, with a store of their own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from natsctl.cli.main import run as run_main
from natsctl.client.auth.nsc_store import NscStore
from tests.client.auth.conftest import filled

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NscStore:
    environment = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return NscStore.of_environment(environment)


@pytest.fixture
def recorded(store: NscStore) -> NscStore:
    return filled(store)


@pytest.fixture
def natsctl(store: NscStore, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run_main(list(words))
        return (code, *capsys.readouterr())

    return run
