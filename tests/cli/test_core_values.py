"""Plain values of flags, read without pydantic, and the same as Typer reads them."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any

import pytest
import typer
import typer.main

from natsctl.cli.plain_values import read_plainly


def _run(*words: str, plain: bool) -> Any:
    app = typer.Typer(add_completion=False)
    seen: dict[str, Any] = {}

    @app.command()
    def command(
        text: Annotated[str | None, typer.Argument()] = None,
        number: Annotated[int, typer.Option("--number", min=0, max=10)] = 3,
        share: Annotated[float | None, typer.Option("--share")] = None,
        many: Annotated[list[str] | None, typer.Option("--many")] = None,
        switch: Annotated[bool, typer.Option("--switch")] = False,
        state: Annotated[bool | None, typer.Option("--state/--no-state")] = None,
    ) -> None:
        seen.update(text=text, number=number, share=share, many=many, switch=switch, state=state)

    built: Any = typer.main.get_command(app)
    if plain:
        read_plainly(built.params)
    try:
        built.main(args=list(words), standalone_mode=False)
    except typer.BadParameter as failure:
        return type(failure).__name__, failure.param.name if failure.param else None
    return seen


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["a"],
        ["b c", "--number", "0"],
        ["a", "--number=10", "--share", "0.5", "--many", "x", "--many", "y", "--switch", "--state"],
        ["--no-state", "--share=-1"],
        ["--number", "11"],
        ["--number", "-1"],
        ["--number", "x"],
        ["--number", "1.5"],
        ["--share", "x"],
    ],
)
def test_values_and_refusals_are_those_of_typer(words: list[str]) -> None:
    assert _run(*words, plain=True) == _run(*words, plain=False)


def test_a_command_with_flags_runs_without_pydantic() -> None:
    code = (
        "import sys; from natsctl.cli.main import run;"
        "run(['-s', '127.0.0.1:1', 'stream', 'info', 'X', '-j']);"
        "print('pydantic' in sys.modules, 'rich' in sys.modules, 'nats.js.client' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "False False False\n"
