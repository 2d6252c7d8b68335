"""`${NAME}` in documents: values of the environment and of the command line."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.documents import InterpolationError, escaped, expanded
from natsctl.desired.documents import load_documents

CASES = yaml.safe_load(Path(__file__).with_name("references.yaml").read_text())


@pytest.mark.parametrize(("text", "becomes"), CASES["values"])
def test_references_become_their_values(text: str, becomes: str) -> None:
    assert expanded(text, {"NAME": "ORDERS", "EMPTY": "", "TWICE": "${NAME}"}) == becomes


@pytest.mark.parametrize(("text", "reason"), CASES["reasons"])
def test_what_can_not_be_replaced_is_told(text: str, reason: str) -> None:
    with pytest.raises(InterpolationError) as caught:
        expanded(text, {"NAME": "ORDERS", "EMPTY": ""})
    assert reason in str(caught.value)


@given(st.text(alphabet="${}aA:-?", max_size=20))
def test_an_escaped_text_is_itself_again(text: str) -> None:
    assert expanded(escaped(text), {}) == text


def test_variables_come_before_the_environment(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: ${NAME}\n")
    found = load_documents([str(tmp_path / "a.yaml")], {"NAME": "ENV"}, variables={"NAME": "VAR"})
    assert [key.name for key in found.wanted] == ["VAR"]
