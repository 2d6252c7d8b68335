"""A store that nats 0.5.1 made, and an empty one."""

import json
from pathlib import Path

import pytest

from natsctl.client.auth.nsc_store import NscStore

STORE_OF_NATS = Path(__file__).with_name("store_of_nats.json")


@pytest.fixture
def store(tmp_path: Path) -> NscStore:
    return NscStore.of_environment({"XDG_DATA_HOME": str(tmp_path)})


@pytest.fixture
def store_of_nats(store: NscStore) -> NscStore:
    return filled(store)


def filled(store: NscStore) -> NscStore:
    """The store of `nats auth`: operator RECORDED, account ORDERS with a scoped key and two users, admin in SYSTEM."""
    for name, text in json.loads(STORE_OF_NATS.read_text()).items():
        path = store.stores.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return store
