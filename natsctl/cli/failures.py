"""How failures end a command: one mapping to exit codes, one text and one JSON form."""

from __future__ import annotations

import json
from typing import Any

from natsctl.api.exit_codes import ExitCode

MOST_FAULTS = 200
"""Mistakes of documents that an error shows; natsctl validate shows all."""


def exit_code_of(failure: BaseException) -> ExitCode:
    """The one mapping from what went wrong to the exit code of the table."""
    if isinstance(failure, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    code = getattr(failure, "exit_code", ExitCode.FAILED)
    return ExitCode(code) if code in {int(known) for known in ExitCode} else ExitCode.FAILED


def text_of(failure: BaseException) -> str:
    """What went wrong in one line; a failure that is nobody's known case is told by its kind too."""
    from natsctl.api.errors import NatsctlError

    if isinstance(failure, NatsctlError):
        return str(failure)
    if isinstance(failure, OSError) and failure.strerror:
        return f"{failure.filename}: {failure.strerror}" if failure.filename else failure.strerror
    return f"unexpected {type(failure).__name__}: {failure}".rstrip(": ")


def hint_of(failure: BaseException) -> str:
    """Return what helps against a failure, empty where nothing is known."""
    from natsctl.api.err_codes import ErrCode

    hint = str(getattr(failure, "hint", None) or "")
    if not hint and getattr(getattr(failure, "error", None), "err_code", 0) == ErrCode.STREAM_OFFLINE_REASON:
        return (
            "natsctl stream rm gives it up and frees its name; natsctl server repair, on the stopped server, saves it"
        )
    return hint


def error_object(failure: BaseException) -> dict[str, Any]:
    """The failure as the JSON object that goes to stderr when `-j` was given; what is not known is null."""
    api_error = getattr(failure, "error", None)
    return {
        "error": {
            "code": getattr(api_error, "code", None),
            "err_code": getattr(api_error, "err_code", None),
            "description": getattr(api_error, "description", None) or text_of(failure),
            "subject": getattr(failure, "subject", None) or None,
            "hint": hint_of(failure) or None,
        }
    }


def render_error(failure: BaseException, as_json: bool) -> str:
    """The text for stderr: the JSON object on one line, or `natsctl: error: …` with the hint below it.

    What has several `faults` has a line for each, below its `headline` or their number.
    """
    if as_json:
        return json.dumps(error_object(failure), ensure_ascii=False)
    from natsctl.cli.render.text import safe

    err_code = getattr(getattr(failure, "error", None), "err_code", 0)
    faults = [safe(str(fault)) for fault in getattr(failure, "faults", ())]
    headline = getattr(failure, "headline", "") or (f"{len(faults)} faults" if len(faults) > 1 else "")
    if headline:
        lines = [f"natsctl: error: {headline}", *faults]
    else:
        lines = [f"natsctl: error: {safe(text_of(failure))}{f' ({err_code})' if err_code else ''}"]
    hints = hint_of(failure).splitlines()
    return "\n  ".join([*lines, *map(safe, hints)])
