"""`natsctl errors` explains errors without a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from natsctl.api.catalogue import entries
from natsctl.cli.main import run


@pytest.fixture
def errors(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")

    def ask(*words: str) -> tuple[int, str, str]:
        code = run(["errors", *words])
        return (code, *capsys.readouterr())

    return ask


def test_every_error_is_listed_with_its_cause(errors: Any) -> None:
    code, out, err = errors("ls", "-j")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert [one["err_code"] for one in found] == sorted(entries())
    assert all(one["cause"] for one in found)
    assert {one["use"] for one in found} == {"current", "legacy", "reserved"}


@pytest.mark.parametrize("word", ["10059", "JSStreamNotFoundErr", "jsstreamnotfounderr"])
def test_an_error_is_found_by_number_and_by_name(errors: Any, word: str) -> None:
    assert json.loads(errors("lookup", word, "-j")[1])["description"] == "stream not found"
    page = errors("find", word)[1]
    for text in ("NATS Error 10059", "HTTP Code: 404", "Cause: ", "Exit Code: 3"):
        assert text in page


def test_lists_match_and_sort(errors: Any) -> None:
    found = json.loads(errors("ls", "mirror.*subject", "-j")[1])
    assert 0 < len(found) < 20
    by_http = [one["code"] for one in json.loads(errors("ls", ".", "http", "-R", "-j")[1])]
    assert by_http == sorted(by_http, reverse=True)
    by_text = [one["description"].lower() for one in json.loads(errors("ls", ".", "d", "-j")[1])]
    assert by_text == sorted(by_text)
    assert "stream not found" in errors("ls", "10059")[1]
    assert errors("ls", "nothing at all")[:2] == (0, "No error matches\n")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("lookup", "1"), 3, "there is no error 1"),
        (("lookup", "JSStreamNotFoudErr"), 3, 'did you mean "JSStreamNotFoundErr"'),
        (("ls", "("), 2, "not a regular expression"),
        (("ls", ".", "size"), 2, "code, http, description"),
    ],
)
def test_what_is_not_there_is_told(errors: Any, words: tuple[str, ...], code: int, text: str) -> None:
    done = errors(*words)
    assert done[0] == code
    assert text in done[2]
