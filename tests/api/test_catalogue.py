"""The error catalogue and the exit codes that follow from it."""

import re

import pytest

from natsctl.api import errors
from natsctl.api.catalogue import ApiError, entries, error, lookup


def test_every_entry_can_be_made_into_an_error() -> None:
    assert len(entries()) == 225
    for entry in entries().values():
        names = re.findall(r"{(\w+)}", entry.description)
        made = error(entry.err_code, **dict.fromkeys(names, "X"))
        assert made.code == entry.code
        assert "{" not in made.description


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
    assert errors.ApiFailure(failure, "$JS.API.X").exit_code == exit_code


def test_each_kind_of_failure_has_the_exit_code_of_the_design() -> None:
    kinds = {
        errors.UsageError: 2,
        errors.Unreachable: 5,
        errors.NotAuthorised: 6,
        errors.NothingReceived: 7,
        errors.ProtocolError: 1,
        errors.StorageError: 1,
    }
    assert {kind: kind("x", hint="y").exit_code for kind in kinds} == kinds
