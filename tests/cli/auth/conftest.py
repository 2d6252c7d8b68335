"""Commands of `natsctl auth` in process, with a store of their own."""

from pathlib import Path

import pytest

from natsctl.client.auth.nsc_store import NscStore
from tests.client.auth.conftest import filled
from tests.support.commands import Run


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
def natsctl(store: NscStore, offline: Run) -> Run:
    return offline
