"""`natsctl errors` explains errors without a server."""

import json
from functools import partial
from pathlib import Path

import pytest

from natsctl.api.catalogue import entries
from tests.support.commands import Run


@pytest.fixture
def errors(offline: Run) -> Run:
    return partial(offline, "errors")


def test_every_error_is_listed_with_its_cause(errors: Run) -> None:
    code, out, err = errors("ls", "-j")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert [one["err_code"] for one in found] == sorted(entries())
    assert all(one["cause"] for one in found)
    assert {one["use"] for one in found} == {"current", "legacy", "reserved"}


@pytest.mark.parametrize("word", ["10059", "JSStreamNotFoundErr", "jsstreamnotfounderr"])
def test_an_error_is_found_by_number_and_by_name(errors: Run, word: str) -> None:
    assert json.loads(errors("lookup", word, "-j")[1])["description"] == "stream not found"
    page = errors("find", word)[1]
    for text in ("NATS Error 10059", "HTTP Code: 404", "Cause: ", "Exit Code: 3"):
        assert text in page


def test_lists_match_and_sort(errors: Run) -> None:
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
def test_what_is_not_there_is_told(errors: Run, words: tuple[str, ...], code: int, text: str) -> None:
    done = errors(*words)
    assert done[0] == code
    assert text in done[2]


GOOD = {"constant": "AErr", "code": 400, "error_code": 10001, "description": "a", "comment": "c", "own": 1}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "errors.json"
    place.write_text(json.dumps([GOOD]))
    return place


def test_errors_of_a_file_are_listed_and_explained(errors: Run, file: Path) -> None:
    (one,) = json.loads(errors("ls", "--errors", str(file), "-j")[1])
    assert (one["err_code"], one["cause"]) == (10001, "c")
    assert "NATS Error 10001" in errors("lookup", "aerr", "--errors", str(file))[1]
    assert errors("lookup", "10059", "--errors", str(file))[0] == 3


def test_a_file_of_errors_is_checked(errors: Run, file: Path) -> None:
    assert errors("validate", str(file)) == (0, "Validated 1 errors\n", "")
    wrong = [
        GOOD, {**GOOD, "description": "{err}"}, {"error_code": 5, "description": "{a"},
        {"constant": "XF", "code": 1, "error_code": 10003, "description": "{x}"},
    ]  # fmt: skip
    file.write_text(json.dumps(wrong))
    code, out, _ = errors("validate", "--errors", str(file), "-j")
    faults = json.loads(out)["faults"]
    assert (code, json.loads(out)["errors"], set(faults)) == (1, 4, {"10001", "5", "10003"})
    assert faults["10001"] == ["the constant of an error with tokens must end in F", "this error_code is used twice"]
    assert "code is missing" in faults["5"]
    assert faults["10003"] == ["a description of one token needs a comment"]
    assert "10001 failed: " in errors("validate", str(file))[1]


def test_an_error_is_edited_and_added_in_the_editor(errors: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", 'sed -i -e \'s/"description": "a"/"description": "b"/\'')
    before = file.read_text()
    assert (errors("edit", str(file), "10001", "--dry-run")[0], file.read_text()) == (0, before)
    assert errors("edit", str(file), "10001") == (0, "Validated 1 errors\n", "")
    assert json.loads(file.read_text()) == [{**GOOD, "description": "b"}]
    fill = '-e \'s/"constant": ""/"constant": "NewErr"/\' -e \'s/"description": ""/"description": "n"/\''
    monkeypatch.setenv("EDITOR", f'sed -i {fill} -e \'s/"code": 0/"code": 500/\'')
    assert errors("edit", str(file)) == (0, "Validated 2 errors\n", "")
    assert json.loads(file.read_text())[1]["error_code"] == 10002


@pytest.mark.parametrize(
    ("editor", "text"),
    [
        ("true", "constant is missing"),
        ("sed -i 1d", "not a JSON document"),
        ('sed -i -e \'s/"error_code": 10002/"error_code": "x"/\'', "Expected `int`"),
    ],
)
def test_an_edit_with_a_fault_leaves_the_file(
    errors: Run, file: Path, monkeypatch: pytest.MonkeyPatch, editor: str, text: str
) -> None:
    monkeypatch.setenv("EDITOR", editor)
    before = file.read_text()
    code, _, err = errors("edit", str(file))
    assert (code, text in err, file.read_text()) == (2, True, before)


@pytest.mark.parametrize("content", ["{}", "[1]", "no", '[{"code": "x"}]'])
def test_a_file_that_is_none_of_errors_is_refused(errors: Run, file: Path, content: str) -> None:
    file.write_text(content)
    assert errors("validate", str(file))[0] == errors("ls", "--errors", str(file))[0] == 2
    assert errors("validate")[0] == errors("validate", "nowhere.json")[0] == 2
