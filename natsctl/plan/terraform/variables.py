"""The values of variables from outside: the environment, `.tfvars` files and the command line, the last one wins."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from natsctl.api.errors import UsageError
from natsctl.plan.terraform.expression import Evaluator
from natsctl.plan.terraform.syntax import Block, parse
from natsctl.plan.terraform.values import ExpressionError
from natsctl.plan.wanted import Fault

_ENVIRONMENT: Final = "TF_VAR_"
_TEXTUAL: Final = frozenset(("", "string", "number", "bool", "any"))
"""Types of variables whose values on a command line are taken literally."""


def given_variables(
    blocks: Sequence[Block],
    folder: Path,
    environ: Mapping[str, str],
    variables: Sequence[str],
    variable_files: Sequence[str],
    faults: list[Fault],
) -> dict[str, Any]:
    """Return variables by name. Raises UsageError for a file that cannot be read or a malformed `NAME=VALUE`."""
    declared = {block.labels[0]: block for block in blocks if block.type == "variable" and block.labels}
    given: dict[str, Any] = {}
    for name in declared:
        if _ENVIRONMENT + name in environ:
            given[name] = _worded(declared[name], environ[_ENVIRONMENT + name])
    automatic = [folder / "terraform.tfvars", folder / "terraform.tfvars.json", *sorted(folder.glob("*.auto.tfvars*"))]
    for file in [*(path for path in automatic if path.is_file()), *map(Path, variable_files)]:
        given |= _from_file(file, faults)
    for text in variables:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--var {text}: expected NAME=VALUE")
        if name not in declared:
            raise UsageError(f"--var {name}: there is no such variable in these files")
        given[name] = _worded(declared[name], value)
    return given


def _from_file(file: Path, faults: list[Fault]) -> dict[str, Any]:
    try:
        raw = file.read_bytes()
        if file.name.endswith(".json"):
            return dict(json.loads(raw))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
    except (ValueError, TypeError) as error:
        raise UsageError(f"{file}: expected an object of variables in JSON") from error
    whole, wrong = parse(str(file), raw)
    if wrong:
        raise UsageError("\n".join(str(fault) for fault in wrong))
    given = {}
    for one in whole.attributes:
        try:
            given[one.name] = Evaluator(str(file), {}).value(one.value)
        except ExpressionError as error:
            raise UsageError(f"{error.place or one.place}: {error}") from error
    return given


def _worded(declared: Block, text: str) -> Any:
    """Return a value of the command line: text for a plain type, an expression for a list or a map."""
    kind = next((one.value.text or b"" for one in declared.attributes if one.name == "type"), b"").decode().strip()
    if kind in _TEXTUAL:
        return text
    whole, wrong = parse("--var", f"value = {text}\n".encode())
    if wrong or not whole.attributes:
        raise UsageError(f"--var {declared.labels[0]}: {text!r} is no {kind}")
    try:
        return Evaluator("--var", {}).value(whole.attributes[0].value)
    except ExpressionError as error:
        raise UsageError(f"--var {declared.labels[0]}: {error}") from error
