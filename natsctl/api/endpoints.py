"""The table of `$JS.API` verbs: the client builds subjects from it, the engine routes by it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property

from natsctl.api.errors import UsageError
from natsctl.api.subjects import API_PREFIX, LEGACY_NEXT_PREFIX, MAX_NAME_BYTES, is_valid_name
from natsctl.hints import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from natsctl.api.model import Model


class BodyRule(StrEnum):
    """Form of a request body."""

    JSON = "json"
    """Strict JSON; an empty body decodes to the zero value (the name check then refuses it)."""
    REQUIRED = "required"
    """Strict JSON; empty is refused with 10003."""
    OPTIONAL = "optional"
    """Empty, strict JSON, or ignored if it is not a JSON object."""
    LATE = "late"
    """Like REQUIRED, but read only after the stream or consumer of the subject was found."""
    PLAIN = "plain"
    """One JSON value, unknown keys ignored; empty is a fault."""
    EMPTY = "empty"
    """Empty or an empty object; anything else is refused with 10038."""
    RAW = "raw"
    """The endpoint reads the body itself, leniently; the answer is no JSON."""


class AdvisoryPolicy(StrEnum):
    """Requests that are counted, and published as audit advisories."""

    ALWAYS = "always"
    FAILED = "failed"
    NEVER = "never"


_READS: Final = frozenset({"INFO", "NAMES", "LIST", "GET", "SNAPSHOT", "NEXT", "BLOCKS"})
"""Last tokens of verbs that change nothing."""
_ONCE: Final = frozenset({"STREAM.SNAPSHOT", "CONSUMER.MSG.NEXT"})
"""Verbs that send something elsewhere for each request."""
_SETS: Final = frozenset(
    f"{kind}.{verb}"
    for kind in ("STREAM", "CONSUMER")
    for verb in ("CREATE", "UPDATE", "DURABLE.CREATE", "DELETE", "PAUSE")
)
"""Verbs with the same effect however often they are sent."""


class ApiEndpoint:
    """One verb. `args` are the name tokens that follow it; `tail` allows a subject of any length after them.

    The models of request and answer are named after the verb: STREAM.INFO has StreamInfoRequest and StreamInfoAnswer.
    `model` is another beginning of both names, `request` another name of that of the request. Models are imported on
    first use: a program that only sends a request and shows the JSON of the answer needs no models.
    """

    def __init__(
        self,
        name: str,
        args: str = "",
        body: BodyRule = BodyRule.OPTIONAL,
        *,
        model: str = "",
        request: str = "",
        error_body: Mapping[str, Any] | None = None,
        optional_args: int = 0,
        tail: bool = False,
        advisory: AdvisoryPolicy = AdvisoryPolicy.ALWAYS,
        cluster: bool = False,
    ) -> None:
        self.name = name
        self.args = tuple(args.split())
        self.optional_args = optional_args
        self.tail = tail
        self.body = body
        self.error_body: dict[str, Any] = dict(error_body or {})
        self.advisory = advisory
        self.cluster = cluster
        """A single node refuses it with 10010."""
        model = model or name.replace("_", ".").title().replace(".", "")
        self._request, self._answer = request or f"{model}Request", f"{model}Answer"

    def __repr__(self) -> str:
        return f"Endpoint({self.name})"

    @cached_property
    def request(self) -> type[Model] | None:
        """Return the model of a request body; None without one."""
        from natsctl.api import requests

        return getattr(requests, self._request, None)

    @cached_property
    def answer(self) -> type[Model] | None:
        """Return the model of an answer, or None if it is not JSON."""
        from natsctl.api import answers

        return getattr(answers, self._answer, None)

    @property
    def pattern(self) -> str:
        """Return the subject that takes every form of the verb, for documentation and permissions."""
        required = [f"{API_PREFIX}.{self.name}", *("*" for _ in self.args[: len(self.args) - self.optional_args])]
        return ".".join([*required, ">"] if self.tail and not self.optional_args else required)

    @property
    def changes(self) -> bool:
        """Return whether the verb changes streams and consumers, or their contents."""
        return self.name.rpartition(".")[2] not in _READS

    def may_repeat(self, *tokens: str) -> bool:
        """Return whether a request that was perhaps carried out may be sent again."""
        if self.name in _SETS:
            return len(tokens) >= len(self.args)  # a consumer without a name would be made twice
        return not self.changes and self.name not in _ONCE

    def subject(self, *tokens: str, prefix: str = API_PREFIX) -> str:
        """Return the request subject for `tokens`: names, then with `tail` a subject. UsageError for bad ones."""
        names, tail = tokens[: len(self.args)], tokens[len(self.args) :]
        if len(names) < len(self.args) - self.optional_args or len(tail) > int(self.tail):
            raise UsageError(f"{self.name} takes {', '.join(self.args) or 'no name'}, got {len(tokens)} tokens")
        for noun, name in zip(self.args, names, strict=False):
            if not is_valid_name(name):
                raise UsageError(
                    f"{noun} name {name!r} is not valid: "
                    f"1 to {MAX_NAME_BYTES} bytes, none of them blank or one of . * > \\ /"
                )
        return ".".join((prefix, self.name, *tokens))

    def takes(self, count: int) -> bool:
        """Return whether a subject with `count` tokens after the verb is a form of it."""
        least = len(self.args) - self.optional_args
        return least <= count and (self.tail or count <= len(self.args))


_PAGE: Final[dict[str, Any]] = {"total": 0, "offset": 0, "limit": 0}
_NO_PAUSE: Final[dict[str, Any]] = {"paused": False, "pause_until": "0001-01-01T00:00:00Z"}

INFO: Final = ApiEndpoint("INFO", model="AccountInfo")

STREAM_CREATE: Final = ApiEndpoint("STREAM.CREATE", "stream", BodyRule.JSON)
STREAM_UPDATE: Final = ApiEndpoint("STREAM.UPDATE", "stream", BodyRule.JSON)
STREAM_NAMES: Final = ApiEndpoint("STREAM.NAMES", error_body={**_PAGE, "streams": None})
STREAM_LIST: Final = ApiEndpoint("STREAM.LIST", error_body={**_PAGE, "streams": []})
STREAM_INFO: Final = ApiEndpoint("STREAM.INFO", "stream", error_body=_PAGE)
STREAM_DELETE: Final = ApiEndpoint("STREAM.DELETE", "stream", BodyRule.EMPTY)
STREAM_PURGE: Final = ApiEndpoint("STREAM.PURGE", "stream", error_body={"purged": 0})
STREAM_MSG_GET: Final = ApiEndpoint("STREAM.MSG.GET", "stream", BodyRule.REQUIRED, advisory=AdvisoryPolicy.FAILED)
STREAM_MSG_DELETE: Final = ApiEndpoint("STREAM.MSG.DELETE", "stream", BodyRule.REQUIRED)
STREAM_BLOCKS: Final = ApiEndpoint("STREAM.BLOCKS", "stream", BodyRule.REQUIRED, advisory=AdvisoryPolicy.FAILED)
"""Natsctl's own: nats-server leaves it without an answer."""
STREAM_SNAPSHOT: Final = ApiEndpoint("STREAM.SNAPSHOT", "stream", BodyRule.LATE)
STREAM_RESTORE: Final = ApiEndpoint("STREAM.RESTORE", "stream", BodyRule.REQUIRED, error_body={"deliver_subject": ""})
STREAM_TEMPLATE_CREATE: Final = ApiEndpoint(
    "STREAM.TEMPLATE.CREATE", "template", BodyRule.JSON, request="StreamTemplateConfig"
)
STREAM_TEMPLATE_NAMES: Final = ApiEndpoint(
    "STREAM.TEMPLATE.NAMES", request="PagedRequest", error_body={**_PAGE, "streams": None}
)
STREAM_TEMPLATE_INFO: Final = ApiEndpoint("STREAM.TEMPLATE.INFO", "template", BodyRule.EMPTY)
STREAM_TEMPLATE_DELETE: Final = ApiEndpoint("STREAM.TEMPLATE.DELETE", "template", BodyRule.EMPTY)
STREAM_LEADER_STEPDOWN: Final = ApiEndpoint(
    "STREAM.LEADER.STEPDOWN", "stream", request="LeaderStepdownRequest", cluster=True
)
STREAM_PEER_REMOVE: Final = ApiEndpoint("STREAM.PEER.REMOVE", "stream", model="StreamRemovePeer", cluster=True)
STREAM_PEER_EVACUATE: Final = ApiEndpoint("STREAM.PEER.EVACUATE", "stream", model="StreamEvacuatePeer", cluster=True)
STREAM_CANCEL_MOVE: Final = ApiEndpoint("STREAM.CANCEL_MOVE", "stream", cluster=True)

CONSUMER_CREATE: Final = ApiEndpoint("CONSUMER.CREATE", "stream consumer", BodyRule.JSON, optional_args=1, tail=True)
CONSUMER_DURABLE_CREATE: Final = ApiEndpoint(
    "CONSUMER.DURABLE.CREATE", "stream consumer", BodyRule.JSON, model="ConsumerCreate"
)
CONSUMER_NAMES: Final = ApiEndpoint(
    "CONSUMER.NAMES", "stream", request="ConsumersRequest", error_body={**_PAGE, "consumers": []}
)
CONSUMER_LIST: Final = ApiEndpoint(
    "CONSUMER.LIST", "stream", request="ConsumersRequest", error_body={**_PAGE, "consumers": []}
)
CONSUMER_INFO: Final = ApiEndpoint("CONSUMER.INFO", "stream consumer", BodyRule.EMPTY)
CONSUMER_DELETE: Final = ApiEndpoint("CONSUMER.DELETE", "stream consumer", BodyRule.EMPTY)
CONSUMER_MSG_NEXT: Final = ApiEndpoint(
    "CONSUMER.MSG.NEXT", "stream consumer", BodyRule.RAW, request="PullRequest", advisory=AdvisoryPolicy.NEVER
)
CONSUMER_PAUSE: Final = ApiEndpoint("CONSUMER.PAUSE", "stream consumer", error_body=_NO_PAUSE)
CONSUMER_UNPIN: Final = ApiEndpoint("CONSUMER.UNPIN", "stream consumer", BodyRule.PLAIN)
CONSUMER_RESET: Final = ApiEndpoint(
    "CONSUMER.RESET", "stream consumer", BodyRule.RAW, error_body={"reset_seq": 0}, advisory=AdvisoryPolicy.NEVER
)
CONSUMER_LEADER_STEPDOWN: Final = ApiEndpoint(
    "CONSUMER.LEADER.STEPDOWN", "stream consumer", request="LeaderStepdownRequest", cluster=True
)
CONSUMER_PEER_REMOVE: Final = ApiEndpoint(
    "CONSUMER.PEER.REMOVE", "stream consumer", model="ConsumerRemovePeer", cluster=True
)
CONSUMER_PEER_EVACUATE: Final = ApiEndpoint(
    "CONSUMER.PEER.EVACUATE", "stream consumer", model="ConsumerEvacuatePeer", cluster=True
)

ACCOUNT_PURGE: Final = ApiEndpoint("ACCOUNT.PURGE", "account")
DIRECT_GET: Final = ApiEndpoint("DIRECT.GET", "stream", BodyRule.RAW, tail=True, advisory=AdvisoryPolicy.NEVER)

ENDPOINTS: Final[dict[str, ApiEndpoint]] = {e.name: e for e in list(globals().values()) if isinstance(e, ApiEndpoint)}
"""Every verb by name. META.*, SERVER.* and ACCOUNT.STREAM.* belong to clusters; a standalone node stays silent."""

_DEEPEST: Final = max(name.count(".") for name in ENDPOINTS) + 1


def find(subject: str) -> tuple[ApiEndpoint, list[str]] | None:
    """Return the verb of a request subject and the tokens after it, or None for any other subject.

    Takes `$JS.API.…`, `$JS.<domain>.API.…` (the caller checks which domain is its own) and `$JS.NEXT.<s>.<c>` of 2020.
    """
    tokens = subject.split(".")
    if subject.startswith(LEGACY_NEXT_PREFIX + ".") and len(tokens) == 4:
        return CONSUMER_MSG_NEXT, tokens[2:]
    if tokens[0] != "$JS" or "API" not in tokens[1:3]:
        return None
    rest = tokens[tokens.index("API", 1) + 1 :]
    for depth in range(min(_DEEPEST, len(rest)), 0, -1):
        endpoint = ENDPOINTS.get(".".join(rest[:depth]))
        if endpoint is not None and endpoint.takes(len(rest) - depth):
            return (endpoint, rest[depth:]) if all(rest) else None
    return None
