"""A plan as a file: written by `plan --out`, printed by `plan -j`, carried out later by `apply`.

It is the plan's JSON object with one member more, `hash`: SHA-256 over everything else, so that a file that was cut or
changed by hand is told. `format` counts the changes of this layout that older versions would misread. The layout is
described in docs/plan-format.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.api.exit_codes import ExitCode
from natsctl.plan.change import Action, Change, Plan
from natsctl.plan.labels import without_server_made
from natsctl.plan.planner.compare import differences
from natsctl.plan.world import World

FORMAT = 1
"""The format that this version writes, and the latest that it reads."""
_HASH = "hash"
_SIGNS = frozenset({"format", "changes", _HASH})
"""Members that identify a document as a saved plan."""


class SavedPlan(Plan, kw_only=True, omit_defaults=False):
    """A plan as it is saved; `hash` covers all other members."""

    hash: str = ""


class PlanChangedError(NatsctlError):
    """The account has changed since the plan was saved; `faults` lists the changes."""

    exit_code = ExitCode.CONFLICT
    headline = "nothing was changed: the account is not what the plan was made for"

    def __init__(self, told: Sequence[str]) -> None:
        self.faults = list(told)
        text = "\n".join([f"{self.headline}:", *self.faults])
        super().__init__(text, hint="make a new plan with natsctl plan --out")


def saved_document(plan: Plan) -> dict[str, Any]:
    """Return the JSON object of a saved plan."""
    document: dict[str, Any] = {**msgspec.to_builtins(plan), "format": FORMAT}
    document.pop(_HASH, None)
    return {**document, _HASH: _hash_of(document)}


def encode_plan(plan: Plan) -> bytes:
    """Return the content of the file."""
    return json.dumps(saved_document(plan), indent=2, ensure_ascii=False).encode() + b"\n"


def is_saved_plan(text: bytes) -> bool:
    """Return whether a file's content looks like a saved plan, whole or not, rather than like a document."""
    if not text.lstrip().startswith(b"{"):
        return False
    try:
        document = json.loads(text)
    except ValueError:
        return False
    return isinstance(document, dict) and document.keys() >= _SIGNS


def decode_plan(text: bytes, origin: str) -> Plan:
    """Return the plan in a file's content.

    Raises UsageError where it is none, of a later format, or not as it was written.
    """
    try:
        document = json.loads(text)
    except ValueError as failure:
        raise UsageError(f"{origin} is no saved plan: {failure}", hint=_MAKE_ANEW) from failure
    if not isinstance(document, dict) or not document.keys() >= _SIGNS:
        raise UsageError(f"{origin} is no saved plan", hint="natsctl plan --out FILE writes one")
    said = document["format"]
    if not isinstance(said, int) or said > FORMAT:
        raise UsageError(
            f"{origin} is a plan of format {said}, this natsctl reads up to {FORMAT}",
            hint="apply it with the natsctl that made it, or a newer one",
        )
    if document.pop(_HASH) != _hash_of(document):
        raise UsageError(f"{origin} is not as it was written: its hash is another", hint=_MAKE_ANEW)
    try:
        return msgspec.convert(document, Plan)
    except msgspec.ValidationError as failure:
        raise UsageError(f"{origin}: {failure}", hint=_MAKE_ANEW) from failure


_MAKE_ANEW = "make it anew with natsctl plan --out; a plan is not meant to be edited"


def _hash_of(document: dict[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def changed_since(plan: Plan, world: World) -> list[str]:
    """Return the differences of the account from the time of the plan, a sentence for each asset and field."""
    told: list[str] = []
    for change in plan.changes:
        if change.action is not Action.NONE:
            told += _changed(change, world)
    return told


def _changed(change: Change, world: World) -> list[str]:
    live = world.assets.get(change.key)
    if change.before is None:
        return [] if live is None else [f"{change.key} exists now"]
    if live is None:
        return [f"{change.key} does not exist any more"]
    found = differences(change.before, without_server_made(live.config))
    return [f"{change.key}: {one.path} was {_shown(one.old)}, it is {_shown(one.new)} now" for one in found]


def _shown(value: Any) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)
