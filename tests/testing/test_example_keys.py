"""The examples of nats.conf that hold keys."""

from __future__ import annotations

from pathlib import Path

from tests.support.example_keys import example_files

EXAMPLES = Path(__file__).parents[2] / "examples" / "configs"


def test_keys_of_the_examples_are_those_of_the_published_seeds() -> None:
    for name, text in example_files().items():
        assert (EXAMPLES / name).read_text() == text, name
