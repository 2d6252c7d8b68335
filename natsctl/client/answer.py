"""A server's answer in two forms: exactly as sent, and typed."""

from __future__ import annotations

import json
from typing import Any, Generic, TypeVar

from natsctl.api.endpoints import Endpoint
from natsctl.api.errors import ProtocolError

T = TypeVar("T")


class Answer(Generic[T]):
    """`raw` is the JSON object as the server sent it, with unknown fields.

    `value` is the same as a model, made on first use. `kind` is that model, or the endpoint that knows it.
    """

    __slots__ = ("_body", "_kind", "_raw", "_value", "subject")

    def __init__(
        self, kind: type[T] | Endpoint, subject: str, body: bytes = b"", raw: dict[str, Any] | None = None
    ) -> None:
        self.subject = subject
        self._kind = kind
        self._body = body
        self._raw = raw
        self._value: T | None = None

    @property
    def raw(self) -> dict[str, Any]:
        """Return the JSON object; raises ProtocolError if the answer is not one."""
        if self._raw is None:
            self._raw = parse_object(self._body, self.subject)
        return self._raw

    @property
    def value(self) -> T:
        """Return the typed model; raises ProtocolError if a field has another type than the contract's."""
        if self._value is None:
            import msgspec

            kind: Any = self._kind.answer if isinstance(self._kind, Endpoint) else self._kind
            try:
                self._value = msgspec.convert(self.raw, kind)
            except msgspec.ValidationError as failure:
                raise ProtocolError(f"the answer on {self.subject} is not understood: {failure}") from failure
        return self._value


class Listing(list[T]):
    """The entries of all pages; `raw` is the answer of the first page with the entries of all."""

    def __init__(self, entries: list[T], raw: dict[str, Any]) -> None:
        super().__init__(entries)
        self.raw = raw


def parse_object(body: bytes, subject: str) -> dict[str, Any]:
    """Return the JSON object of an answer; raises ProtocolError."""
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError) as failure:
        raise ProtocolError(f"the answer on {subject} is not JSON: {body[:64]!r}") from failure
    if not isinstance(raw, dict):
        raise ProtocolError(f"the answer on {subject} is not a JSON object: {body[:64]!r}")
    return raw
