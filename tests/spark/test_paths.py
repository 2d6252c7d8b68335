"""Paths of this machine as Spark spells them."""

from __future__ import annotations

from pathlib import Path

import pytest

from natsctl.spark.paths import local_path, spark_input, spark_path


@pytest.mark.parametrize("name", ["plain", "with space", "zażółć é", "50%20 #?&=+", "[a]{b}*"])
def test_nothing_of_a_path_is_escaped_and_it_is_found_again(name: str) -> None:
    path = Path("/data") / name
    assert spark_path(path) == f"file:///data/{name}"
    assert local_path(spark_path(path)) == path
    assert local_path(f"file:/data/{name}") == path  # as Spark writes it


def test_what_is_read_is_no_pattern() -> None:
    assert spark_input(Path("/d/a[1]*{x}?")) == r"file:///d/a\[1\]\*\{x\}\?"
    assert spark_input(Path("/d/a b")) == "file:///d/a b"


@pytest.mark.parametrize("place", ["s3a://bucket/x", "hdfs://name/x", "dbfs:/x", "hdfs:/x"])
def test_other_file_systems_have_no_path_here(place: str) -> None:
    assert local_path(place) is None


def test_what_is_no_url_is_a_path() -> None:
    assert local_path("here/50%20") == Path("here/50%20")
