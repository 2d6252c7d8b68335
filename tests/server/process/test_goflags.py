import pytest

from natsctl.server.process.flags import FlagError, FlagSpec, parse_flags

SPECS = {
    "p": FlagSpec("port", "int"),
    "port": FlagSpec("port", "int"),
    "js": FlagSpec("jetstream", "bool"),
    "T": FlagSpec("log_time", "bool"),
    "sd": FlagSpec("store_dir", "text"),
}


@pytest.mark.parametrize(
    "argv",
    [["-p", "-1"], ["--p", "-1"], ["-p=-1"], ["--port=-1"], ["--port", "-1"], ["-p", "4222", "-port", "-1"]],
)
def test_one_or_two_dashes_and_blank_or_equals_sign_mean_the_same(argv: list[str]) -> None:
    assert parse_flags(argv, SPECS).values == {"port": -1}


def test_a_boolean_takes_its_value_only_after_an_equals_sign() -> None:
    given = parse_flags(["-js", "-T=false", "true"], SPECS)
    assert given.values == {"jetstream": True, "log_time": False}
    assert given.rest == ["true"]


def test_the_value_of_a_text_flag_may_look_like_a_flag() -> None:
    assert parse_flags(["-sd", "-js"], SPECS).values == {"store_dir": "-js"}


def test_a_value_keeps_its_further_equals_signs() -> None:
    assert parse_flags(["-sd=a=b"], SPECS).values == {"store_dir": "a=b"}


@pytest.mark.parametrize("argv", [["-js", "--", "-p", "1"], ["-js", "-", "-p", "1"], ["-js", "x", "-p", "1"]])
def test_flags_end_at_two_dashes_or_at_the_first_argument(argv: list[str]) -> None:
    given = parse_flags(argv, SPECS)
    assert given.values == {"jetstream": True}
    assert given.rest[-2:] == ["-p", "1"]


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-x"], "flag provided but not defined: -x"),
        (["-p"], "flag needs an argument: -p"),
        (["-p", "4k"], 'invalid value "4k" for flag -p: parse error'),
        (["-js=maybe"], 'invalid boolean value "maybe" for -js: parse error'),
        (["---p", "1"], "bad flag syntax: ---p"),
        (["-=1"], "bad flag syntax: -=1"),
    ],
)
def test_what_cannot_be_understood_is_named(argv: list[str], text: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse_flags(argv, SPECS)
    assert str(caught.value) == text


def test_the_spelling_used_is_kept_for_messages() -> None:
    assert parse_flags(["--port=1"], SPECS).spelled == {"port": "--port"}
