"""The table of `$JS.API` verbs: the client builds subjects from it, the engine routes by it."""

from typing import Any, Final

import msgspec

from natsctl.api import answers, requests
from natsctl.api.errors import UsageError
from natsctl.api.messages import PullRequest
from natsctl.api.model import Model, WireEnum
from natsctl.api.subjects import API_PREFIX, LEGACY_NEXT_PREFIX, MAX_NAME, is_valid_name


class BodyRule(WireEnum):
    """What a request body must be."""

    JSON = "json"
    """Strict JSON; an empty body decodes to the zero value (the name check then refuses it)."""
    REQUIRED = "required"
    """Strict JSON; empty is refused with 10003."""
    OPTIONAL = "optional"
    """Empty, strict JSON, or something that is no JSON object, which is ignored."""
    LATE = "late"
    """Like REQUIRED, but read only once what the subject names was found."""
    PLAIN = "plain"
    """One JSON value, unknown keys ignored; empty is a fault."""
    EMPTY = "empty"
    """Empty or an empty object; anything else is refused with 10038."""
    RAW = "raw"
    """The endpoint reads the body itself, leniently; the answer is no JSON."""


class Told(WireEnum):
    """Which requests are counted, and told to whoever audits."""

    ALWAYS = "always"
    FAILED = "failed"
    NEVER = "never"


_READS: Final = frozenset({"INFO", "NAMES", "LIST", "GET", "SNAPSHOT", "NEXT"})
"""Last words of verbs that leave everything as it is."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One verb. `args` are the name tokens that follow it; `tail` allows a subject of any length after them."""

    name: str
    args: tuple[str, ...] = ()
    optional_args: int = 0
    tail: bool = False
    request: type[Model] | None = None
    answer: type[Model] | None = None
    body: BodyRule = BodyRule.OPTIONAL
    error_body: dict[str, Any] = {}
    told: Told = Told.ALWAYS
    cluster: bool = False
    """A single node refuses it with 10010."""

    @property
    def pattern(self) -> str:
        """Return the subject that takes every form of the verb, for documentation and permissions."""
        required = [f"{API_PREFIX}.{self.name}", *("*" for _ in self.args[: len(self.args) - self.optional_args])]
        return ".".join([*required, ">"] if self.tail and not self.optional_args else required)

    @property
    def changes(self) -> bool:
        """Tell whether the verb changes what streams and consumers there are, or what they hold."""
        return self.name.rpartition(".")[2] not in _READS

    def subject(self, *tokens: str, prefix: str = API_PREFIX) -> str:
        """Return the request subject for `tokens`: names, then with `tail` a subject. UsageError for bad ones."""
        names, tail = tokens[: len(self.args)], tokens[len(self.args) :]
        if len(names) < len(self.args) - self.optional_args or len(tail) > int(self.tail):
            raise UsageError(f"{self.name} takes {', '.join(self.args) or 'no name'}, got {len(tokens)} tokens")
        for noun, name in zip(self.args, names, strict=False):
            if not is_valid_name(name):
                raise UsageError(
                    f"{noun} name {name!r} is not valid: "
                    f"1 to {MAX_NAME} characters, none of them blank or one of . * > \\ /"
                )
        return ".".join((prefix, self.name, *tokens))

    def takes(self, count: int) -> bool:
        """Tell whether a subject with `count` tokens after the verb is a form of it."""
        least = len(self.args) - self.optional_args
        return least <= count and (self.tail or count <= len(self.args))


_PAGE: Final[dict[str, Any]] = {"total": 0, "offset": 0, "limit": 0}
_NO_PAUSE: Final[dict[str, Any]] = {"paused": False, "pause_until": "0001-01-01T00:00:00Z"}
_S: Final = ("stream",)
_SC: Final = ("stream", "consumer")
_T: Final = ("template",)


def _e(name: str, **kwargs: Any) -> Endpoint:
    return Endpoint(name=name, **kwargs)


_a, _r = answers, requests
INFO: Final = _e("INFO", answer=_a.AccountInfoAnswer)

STREAM_CREATE: Final = _e(
    "STREAM.CREATE", args=_S, request=_r.StreamCreateRequest, answer=_a.StreamCreateAnswer, body=BodyRule.JSON
)
STREAM_UPDATE: Final = _e(
    "STREAM.UPDATE", args=_S, request=_r.StreamUpdateRequest, answer=_a.StreamUpdateAnswer, body=BodyRule.JSON
)
STREAM_NAMES: Final = _e(
    "STREAM.NAMES",
    request=_r.StreamNamesRequest,
    answer=_a.StreamNamesAnswer,
    error_body={**_PAGE, "streams": None},
)
STREAM_LIST: Final = _e(
    "STREAM.LIST", request=_r.StreamListRequest, answer=_a.StreamListAnswer, error_body={**_PAGE, "streams": []}
)
STREAM_INFO: Final = _e(
    "STREAM.INFO", args=_S, request=_r.StreamInfoRequest, answer=_a.StreamInfoAnswer, error_body=_PAGE
)
STREAM_DELETE: Final = _e("STREAM.DELETE", args=_S, answer=_a.StreamDeleteAnswer, body=BodyRule.EMPTY)
STREAM_PURGE: Final = _e(
    "STREAM.PURGE", args=_S, request=_r.StreamPurgeRequest, answer=_a.StreamPurgeAnswer, error_body={"purged": 0}
)
STREAM_MSG_GET: Final = _e(
    "STREAM.MSG.GET",
    args=_S,
    request=_r.StreamMsgGetRequest,
    answer=_a.StreamMsgGetAnswer,
    body=BodyRule.REQUIRED,
    told=Told.FAILED,
)
STREAM_MSG_DELETE: Final = _e(
    "STREAM.MSG.DELETE",
    args=_S,
    request=_r.StreamMsgDeleteRequest,
    answer=_a.StreamMsgDeleteAnswer,
    body=BodyRule.REQUIRED,
)
STREAM_SNAPSHOT: Final = _e(
    "STREAM.SNAPSHOT",
    args=_S,
    request=_r.StreamSnapshotRequest,
    answer=_a.StreamSnapshotAnswer,
    body=BodyRule.LATE,
)
STREAM_RESTORE: Final = _e(
    "STREAM.RESTORE",
    args=_S,
    request=_r.StreamRestoreRequest,
    answer=_a.StreamRestoreAnswer,
    body=BodyRule.REQUIRED,
    error_body={"deliver_subject": ""},
)
STREAM_TEMPLATE_CREATE: Final = _e(
    "STREAM.TEMPLATE.CREATE",
    args=_T,
    request=_r.StreamTemplateConfig,
    answer=_a.StreamTemplateCreateAnswer,
    body=BodyRule.JSON,
)
STREAM_TEMPLATE_NAMES: Final = _e(
    "STREAM.TEMPLATE.NAMES",
    request=_r.PagedRequest,
    answer=_a.StreamTemplateNamesAnswer,
    error_body={**_PAGE, "streams": None},
)
STREAM_TEMPLATE_INFO: Final = _e(
    "STREAM.TEMPLATE.INFO", args=_T, answer=_a.StreamTemplateInfoAnswer, body=BodyRule.EMPTY
)
STREAM_TEMPLATE_DELETE: Final = _e(
    "STREAM.TEMPLATE.DELETE", args=_T, answer=_a.StreamTemplateDeleteAnswer, body=BodyRule.EMPTY
)
STREAM_LEADER_STEPDOWN: Final = _e(
    "STREAM.LEADER.STEPDOWN",
    args=_S,
    request=_r.LeaderStepdownRequest,
    answer=_a.StreamLeaderStepdownAnswer,
    cluster=True,
)
STREAM_PEER_REMOVE: Final = _e(
    "STREAM.PEER.REMOVE", args=_S, request=_r.StreamRemovePeerRequest, answer=_a.StreamRemovePeerAnswer, cluster=True
)
STREAM_PEER_EVACUATE: Final = _e("STREAM.PEER.EVACUATE", args=_S, answer=_a.StreamEvacuatePeerAnswer, cluster=True)
STREAM_CANCEL_MOVE: Final = _e("STREAM.CANCEL_MOVE", args=_S, answer=_a.StreamCancelMoveAnswer, cluster=True)

CONSUMER_CREATE: Final = _e(
    "CONSUMER.CREATE",
    args=_SC,
    optional_args=1,
    tail=True,
    request=_r.ConsumerCreateRequest,
    answer=_a.ConsumerCreateAnswer,
    body=BodyRule.JSON,
)
CONSUMER_DURABLE_CREATE: Final = _e(
    "CONSUMER.DURABLE.CREATE",
    args=_SC,
    request=_r.ConsumerCreateRequest,
    answer=_a.ConsumerCreateAnswer,
    body=BodyRule.JSON,
)
CONSUMER_NAMES: Final = _e(
    "CONSUMER.NAMES",
    args=_S,
    request=_r.ConsumersRequest,
    answer=_a.ConsumerNamesAnswer,
    error_body={**_PAGE, "consumers": []},
)
CONSUMER_LIST: Final = _e(
    "CONSUMER.LIST",
    args=_S,
    request=_r.ConsumersRequest,
    answer=_a.ConsumerListAnswer,
    error_body={**_PAGE, "consumers": []},
)
CONSUMER_INFO: Final = _e("CONSUMER.INFO", args=_SC, answer=_a.ConsumerInfoAnswer, body=BodyRule.EMPTY)
CONSUMER_DELETE: Final = _e("CONSUMER.DELETE", args=_SC, answer=_a.ConsumerDeleteAnswer, body=BodyRule.EMPTY)
CONSUMER_MSG_NEXT: Final = _e("CONSUMER.MSG.NEXT", args=_SC, request=PullRequest, body=BodyRule.RAW, told=Told.NEVER)
CONSUMER_PAUSE: Final = _e(
    "CONSUMER.PAUSE",
    args=_SC,
    request=_r.ConsumerPauseRequest,
    answer=_a.ConsumerPauseAnswer,
    error_body=_NO_PAUSE,
)
CONSUMER_UNPIN: Final = _e(
    "CONSUMER.UNPIN",
    args=_SC,
    request=_r.ConsumerUnpinRequest,
    answer=_a.ConsumerUnpinAnswer,
    body=BodyRule.PLAIN,
)
CONSUMER_RESET: Final = _e(
    "CONSUMER.RESET",
    args=_SC,
    request=_r.ConsumerResetRequest,
    answer=_a.ConsumerResetAnswer,
    body=BodyRule.RAW,
    error_body={"reset_seq": 0},
    told=Told.NEVER,
)
CONSUMER_LEADER_STEPDOWN: Final = _e(
    "CONSUMER.LEADER.STEPDOWN",
    args=_SC,
    request=_r.LeaderStepdownRequest,
    answer=_a.ConsumerLeaderStepdownAnswer,
    cluster=True,
)
CONSUMER_PEER_REMOVE: Final = _e("CONSUMER.PEER.REMOVE", args=_SC, answer=_a.ConsumerRemovePeerAnswer, cluster=True)
CONSUMER_PEER_EVACUATE: Final = _e(
    "CONSUMER.PEER.EVACUATE", args=_SC, answer=_a.ConsumerEvacuatePeerAnswer, cluster=True
)
ACCOUNT_PURGE: Final = _e("ACCOUNT.PURGE", args=("account",), answer=_a.AccountPurgeAnswer)
DIRECT_GET: Final = _e(
    "DIRECT.GET", args=_S, tail=True, request=_r.DirectGetRequest, body=BodyRule.RAW, told=Told.NEVER
)

ENDPOINTS: Final[dict[str, Endpoint]] = {e.name: e for e in list(globals().values()) if isinstance(e, Endpoint)}
"""Every verb by name. META.*, SERVER.* and ACCOUNT.STREAM.* belong to clusters; a standalone node stays silent."""

_DEEPEST: Final = max(name.count(".") for name in ENDPOINTS) + 1


def find(subject: str) -> tuple[Endpoint, list[str]] | None:
    """Return the verb of a request subject and the tokens after it, or None when it is none of ours.

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
