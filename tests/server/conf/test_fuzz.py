"""The frame of the fuzz programs, and a small run of the one for nats.conf; the large ones are run by hand."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.server.conf.config import apply, read_config
from natsctl.server.conf.syntax import ConfError, load_text
from natsctl.server.options import ServerOptions
from tests.support.fuzz import conf

KEYS = (
    "port", "jetstream", "accounts", "authorization", "websocket", "leafnodes", "tls", "ping_interval", "server_tags",
    "server_metadata", "cluster", "operator", "resolver", "mappings", "lame_duck_duration",
)  # fmt: skip
INNER_KEYS = ("a", "users", "user", "enabled", "limits", "url", "remotes")
GOOD = sorted(conf.CORPUS.glob("*.conf"))


def array(items: list[str]) -> str:
    return "[" + "\n".join(items) + "\n]"


def block(pairs: dict[str, str]) -> str:
    return "{" + "\n".join(f"{key}: {value}" for key, value in pairs.items()) + "\n}"


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_the_corpus_is_made_of_good_files(path: Path) -> None:
    read_config(path, ServerOptions(), {})


@given(st.integers(min_value=0))
def test_a_spoilt_file_is_read_or_refused_with_its_place(number: int) -> None:
    chance = random.Random(number)
    conf.check(conf.make(chance), chance)


@given(
    st.sampled_from(KEYS),
    st.recursive(
        st.sampled_from(["1", "-1", "true", "x", '""', '"a b"', "1.5", "2026-01-31T00:00:00Z", "10s", "64MB"]),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(array),
            st.dictionaries(st.sampled_from(INNER_KEYS), inner, max_size=3).map(block),
        ),
        max_leaves=6,
    ),
)  # fmt: skip
def test_any_value_of_any_key_is_taken_or_refused_with_its_place(key: str, value: str) -> None:
    try:
        apply(load_text(f"{key}: {value}\n", {}), ServerOptions())
    except ConfError as error:
        assert str(error).startswith("nats.conf:")
