"""Command lines with arguments out of order: Typer sorts them, or reports the fault.

It sees every value as text. `Parameter` reads them, as for any other line.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Sequence
from typing import Annotated, Any

from natsctl.api.errors import UsageError
from natsctl.cli.framework.command_line import Parameter
from natsctl.cli.framework.globals import BY_SPELLING
from natsctl.cli.framework.resolve import did_you_mean

_USE_RICH = "TYPER_USE_RICH"


def sorted_by_typer(parameters: Sequence[Parameter], words: list[str], path: str) -> dict[str, Any]:
    command = typer_command(parameters)
    import typer

    usage_error: Any = typer.BadParameter.__base__
    try:
        with command.make_context(path, words) as context:
            values: dict[str, Any] = context.params
    except usage_error as failure:
        raise _explained(failure, path) from None
    return {name: value for name, value in values.items() if value is not None and value != ()}


def typer_command(parameters: Sequence[Parameter]) -> Any:
    """Return Typer's command with these parameters, all of them texts and switches."""
    main = _import_typer()
    import typer

    def function(**values: Any) -> None: ...

    declared = []
    for parameter in parameters:
        kind = bool if parameter.is_switch else list[str] if parameter.several else str
        names = parameter.declared.names if parameter.is_option else ()
        how = (typer.Option if names else typer.Argument)(*names, metavar=parameter.declared.metavar or None)
        default = inspect.Parameter.empty if parameter.is_needed else None
        annotation = Annotated[kind | None, how] if default is None else Annotated[kind, how]
        keyword = inspect.Parameter.KEYWORD_ONLY
        declared.append(inspect.Parameter(parameter.name, keyword, default=default, annotation=annotation))
    function.__annotations__ = {one.name: one.annotation for one in declared}
    function.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]  # read by inspect
    app = typer.Typer(add_completion=False)
    app.command()(function)
    command = main.get_command(app)
    for param in command.params:
        if hasattr(param, "get_runtime_param"):  # newer releases read even texts by pydantic
            param.get_runtime_param = lambda: _Unread
    command.add_help_option = False  # `--help` is one of the global options
    return command


class _Unread:
    @staticmethod
    def coerce(value: Any, param: Any, ctx: Any) -> Any:
        return value


def _import_typer() -> Any:
    """Return `typer.main`, imported without rich: errors are plain text."""
    before = os.environ.get(_USE_RICH)
    os.environ[_USE_RICH] = "0"
    try:
        return importlib.import_module("typer.main")
    finally:
        if before is None:
            del os.environ[_USE_RICH]
        else:
            os.environ[_USE_RICH] = before


def _explained(failure: Any, path: str) -> UsageError:
    unknown = getattr(failure, "option_name", "") if hasattr(failure, "possibilities") else ""
    if unknown and failure.ctx is not None:
        flags = [spelling for parameter in failure.ctx.command.params for spelling in parameter.opts]
        hint = _only_when_made(path, unknown) or did_you_mean(unknown, [*flags, *BY_SPELLING])
        return UsageError(f"unknown flag {unknown}", hint=hint or f"see {path} --help")
    text = failure.format_message().strip().removesuffix(".")
    if match := re.fullmatch(r"Missing (?:argument|option) '?(.*?)'?", text):
        text = f"{match[1]} is missing"
    elif match := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", text, re.DOTALL):
        text = f"unexpected argument: {match[1]}"
    return UsageError(text, hint=f"see {path} --help")


def _only_when_made(path: str, flag: str) -> str:
    """Return the reason why an edit lacks a flag of `add`; "" for other flags."""
    words = path.split()
    if words[-1:] != ["edit"] or words[1] not in ("stream", "consumer"):
        return ""
    from natsctl.cli.consumer.definition import CONSUMER_ADD
    from natsctl.cli.stream.create import STREAM_ADD

    table = STREAM_ADD if words[1] == "stream" else CONSUMER_ADD
    known = any(flag in (row.name, *row.aliases) for row in table)
    return f"{flag} is set when a {words[1]} is created, and cannot be changed" if known else ""
