"""The error catalogue: every `err_code` a JetStream API answers, with its HTTP-like code and text.

The texts are data (`errors.json` in this folder): `{"<err_code>": [code, constant, description]}`, where the
description may hold placeholders such as `{err}`.
"""

from functools import cache
from typing import NamedTuple

import msgspec
from msgspec import field

from natsctl.api.model import Int, Model, blank, zero


class ApiError(Model):
    """The `error` object of an answer; servers of 2020 sent no `err_code`."""

    code: Int = field(default_factory=zero)
    err_code: Int = 0
    description: str = field(default_factory=blank)


class CatalogueEntry(NamedTuple):
    """One kind of error: `description` is a template."""

    err_code: int
    code: int
    constant: str
    description: str


@cache
def entries() -> dict[int, CatalogueEntry]:
    """Return the whole catalogue by `err_code`."""
    from pathlib import Path

    raw = msgspec.json.decode(
        Path(__file__).with_name("errors.json").read_bytes(), type=dict[int, tuple[int, str, str]], strict=False
    )
    return {err_code: CatalogueEntry(err_code, *rest) for err_code, rest in raw.items()}


def lookup(err_code: int) -> CatalogueEntry | None:
    """Return the entry of `err_code`, or None when no server sends it."""
    return entries().get(err_code)


def error(err_code: int, **placeholders: object) -> ApiError:
    """Return the error of the catalogue with its placeholders filled in.

    Raises KeyError for a code that is not in the catalogue or a placeholder that was not given.
    """
    entry = entries()[err_code]
    description = entry.description
    if "{" in description:
        description = description.format_map(placeholders)
    return ApiError(code=entry.code, err_code=entry.err_code, description=description)
