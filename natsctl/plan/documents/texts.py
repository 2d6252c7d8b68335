"""What a text says, for those who want its values and nothing of documents: JSON or YAML, without `${…}`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from natsctl.api.errors import UsageError
from natsctl.plan.documents import json_text, yaml_text
from natsctl.plan.documents.faults import TextError
from natsctl.plan.documents.lined import Step


def values_of(text: str, name: str) -> list[Any]:
    """Return the value of each document of a text that is called `name`.

    Raises UsageError with the first fault's line.
    """
    try:
        if text.lstrip().startswith(("{", "[")):
            try:
                return _read(json_text, text)
            except TextError:
                if name.endswith(".json"):
                    raise
                # YAML may start in the same way.
        return _read(yaml_text, text)
    except TextError as fault:
        raise UsageError(f"{name}:{fault.line}: {fault.reason}") from fault


def _read(language: Any, text: str) -> list[Any]:
    def report(line: int, path: Sequence[Step], reason: str) -> None:
        raise TextError(line, reason)

    return [value for _, value in language.documents(text, report, None)]
