"""Placeholders in bodies, subjects and headers: `{{Count}}`, `{{Time}}`, `{{Random 1 10}}` and so on."""

from __future__ import annotations

import random
import re
import string
import uuid
from collections.abc import Callable
from datetime import datetime

from natsctl.api.errors import UsageError

_PLACE = re.compile(r"\{\{\s*\.?(\w+)((?:\s+\d+)*)\s*\}\}")
_LETTERS = string.ascii_letters + string.digits
MAX_RANDOM = 1024 * 1024


def fill(text: str, number: int, now: Callable[[], datetime]) -> str:
    """`text` with its placeholders filled in for the `number`th message, from 1. Raises UsageError."""
    if "{{" not in text:
        return text
    return _PLACE.sub(lambda found: _value(found[1], [int(word) for word in found[2].split()], number, now()), text)


def _value(name: str, numbers: list[int], count: int, now: datetime) -> str:
    if name in ("Count", "Cnt"):
        return str(count)
    if name == "Time":
        return now.strftime("%I:%M%p").lstrip("0")
    if name == "TimeStamp":
        return now.isoformat(timespec="seconds")
    if name == "Unix":
        return str(int(now.timestamp()))
    if name == "UnixNano":
        return str(int(now.timestamp() * 1_000_000) * 1000)
    if name == "ID":
        return uuid.uuid4().hex[:22]
    if name in ("Random", "RandomString"):
        return _random(numbers)
    raise UsageError(f"--templates: unknown placeholder {{{{{name}}}}}")


def _random(numbers: list[int]) -> str:
    if len(numbers) != 2 or not 0 <= numbers[0] <= numbers[1] <= MAX_RANDOM:
        raise UsageError("--templates: {{Random MIN MAX}} takes a shortest and a longest length")
    return "".join(random.choices(_LETTERS, k=random.randint(*numbers)))
