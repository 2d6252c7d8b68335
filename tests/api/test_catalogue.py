"""The error catalogue and the exit codes that follow from it."""

import re
from pathlib import Path

import pytest

from natsctl.api import errors
from natsctl.api.catalogue import ApiError, entries, error, lookup
from natsctl.api.errors import ErrCode


def test_every_entry_can_be_made_into_an_error() -> None:
    assert len(entries()) == 225
    for entry in entries().values():
        names = re.findall(r"{(\w+)}", entry.description)
        made = error(entry.err_code, **dict.fromkeys(names, "X"))
        assert made.code == entry.code
        assert "{" not in made.description


def test_every_code_is_named_after_the_constant_of_nats_server() -> None:
    constants = {entry.err_code: entry.constant for entry in entries().values()}
    codes = {name: code for name, code in vars(ErrCode).items() if name.isupper()}
    assert sorted(codes.values()) == sorted(constants)
    for name, code in codes.items():
        assert re.fullmatch(f"js{name.replace('_', '').lower()}(errf?|f)?", constants[code].lower())


def test_codes_are_written_by_name() -> None:
    rooms = Path(errors.__file__).parents[1]
    numbers = re.compile(
        r"\berror\(\s*1\d{4}\b|err_code (?:==|!=|in|not in) \(?1\d{4}\b|^_?[A-Z][A-Z_]+(?:: Final)? = 10[0-2]\d\d$",
        re.M,
    )
    # What travels to Spark's executors has none of natsctl.api.
    sources = {p for p in rooms.rglob("*.py") if "spark/source" not in p.as_posix()}
    assert {str(p.relative_to(rooms)): found for p in sources if (found := numbers.findall(p.read_text()))} == {}


def test_an_error_has_code_err_code_and_text() -> None:
    assert error(10059) == ApiError(code=404, err_code=10059, description="stream not found")
    assert error(10052, err="a {strange} text").description == "a {strange} text"


def test_a_missing_placeholder_or_code_is_a_fault_of_the_caller() -> None:
    with pytest.raises(KeyError):
        error(10071)
    with pytest.raises(KeyError):
        error(1)
    assert lookup(1) is None


@pytest.mark.parametrize(
    ("failure", "exit_code"),
    [
        (error(10059), 3),
        (error(10014), 3),
        (error(10037), 3),
        (ApiError(code=404, description="stream not found"), 3),
        (error(10058), 4),
        (error(10071, seq=1), 4),
        (error(10039), 5),
        (error(10076), 5),
        (error(10052, err="x"), 1),
        (error(10023), 1),
        (ApiError(code=500, description="?"), 1),
    ],
)
def test_an_api_failure_knows_its_exit_code(failure: ApiError, exit_code: int) -> None:
    assert errors.ApiResponseError(failure, "$JS.API.X").exit_code == exit_code


def test_each_kind_of_failure_has_the_exit_code_of_the_design() -> None:
    kinds = {
        errors.UsageError: 2,
        errors.UnreachableError: 5,
        errors.NotAuthorisedError: 6,
        errors.NothingReceivedError: 7,
        errors.ProtocolError: 1,
        errors.StorageError: 1,
    }
    assert {kind: kind("x", hint="y").exit_code for kind in kinds} == kinds
