"""Searches for streams and consumers by criteria, as in `stream find`, `consumer find` and `stream cluster balance`.

Every given condition of a consumer search holds, or with `invert` none of them.

A condition may be an expression over an information document: `state.messages > 1000 && config.name matches "^ORDERS"`.
The operators are expr-lang's, as in the `nats` tool: `and or not && || !`, comparisons, `in`, `contains`,
`startsWith`, `endsWith`, `matches`, `??`, `? :`, arithmetic, `len lower upper`, lists and members. Nothing but these
three functions can be called, so an expression can compute a value and do nothing else. A member that is absent is nil,
and next to a number 0, as documents leave zeroes out; members are found in Go's spelling too (`Info.Config.MaxMsgs`).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from natsctl.api.errors import UsageError
from natsctl.api.times import is_zero, parse_time
from natsctl.api.versions import metadata_level

if TYPE_CHECKING:
    from natsctl.api.stream import StreamInfo
    from natsctl.client.manager import Manager
    from natsctl.client.requests import Answer


MAX_MATCHED: Final = 100_000
"""Characters of a text that a pattern is tried on."""
_GO_NAMES: Final = {"msgs": "messages", "firsttime": "firstts", "lasttime": "lastts", "consumers": "consumercount"}
"""Members of Go's structs with another JSON key."""


def _matches(text: Any, pattern: Any) -> bool:
    try:
        return re.search(str(pattern), str(text)[:MAX_MATCHED]) is not None
    except re.error as failure:
        raise UsageError(f"--expression: {pattern!r} is not a regular expression: {failure}") from failure


def _numeric(apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def zeroed(one: Any, other: Any) -> Any:
        if one is None or other is None:
            one, other = (type(other)() if one is None else one), (type(one)() if other is None else other)
        return False if one is None else apply(one, other)

    return zeroed


def _divided(one: Any, other: Any) -> Any:
    if not other:
        raise UsageError("--expression: division by zero")
    return one / other


OPERATORS: Final[dict[str, tuple[int, Callable[[Any, Any], Any]]]] = {
    "==": (4, operator.eq),
    "!=": (4, operator.ne),
    "<": (4, _numeric(operator.lt)),
    "<=": (4, _numeric(operator.le)),
    ">": (4, _numeric(operator.gt)),
    ">=": (4, _numeric(operator.ge)),
    "in": (4, lambda item, of: of is not None and item in of),
    "contains": (4, lambda text, part: isinstance(text, str) and isinstance(part, str) and part in text),
    "startsWith": (4, lambda text, part: str(text or "").startswith(str(part))),
    "endsWith": (4, lambda text, part: str(text or "").endswith(str(part))),
    "matches": (4, _matches),
    "+": (5, _numeric(operator.add)),
    "-": (5, _numeric(operator.sub)),
    "*": (6, _numeric(operator.mul)),
    "/": (6, _divided),
    "%": (6, operator.mod),
}
"""Precedence and function of each operator."""
FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "len": lambda value: len(value or ()),
    "lower": lambda value: str(value or "").lower(),
    "upper": lambda value: str(value or "").upper(),
}


def looked_up(value: Any, key: Any) -> Any:
    """Return the member or item, nil if missing."""
    if isinstance(value, Mapping):
        if key in value:
            return value[key]
        plain = str(key).replace("_", "").lower()
        plain = _GO_NAMES.get(plain, plain)
        return next((item for name, item in value.items() if name.replace("_", "").lower() == plain), None)
    if isinstance(value, list) and isinstance(key, int):
        return value[key] if -len(value) <= key < len(value) else None
    return None


MAX_LENGTH: Final = 10_000
"""Characters of an expression: far more than a person types, and few enough to recurse over."""
MAX_DEPTH: Final = 100

Scope = Mapping[str, Any]
Node = Callable[[Scope], Any]

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>\d[\d_]*(?:\.\d+)?)|(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)"""
    r"""|(?P<word>[A-Za-z_$][\w$]*)|(?P<mark>\?\?|\?\.|&&|\|\||==|!=|<=|>=|\*\*|[-+*/%<>!?:.,()\[\]]))""",
    re.VERBOSE,
)
_WORD_MARKS: Final = {"and": "&&", "or": "||", "not": "!"}
_LITERALS: Final = {"true": True, "false": False, "nil": None, "null": None}


def compile_condition(text: str, *, strict: bool = True) -> Callable[[Scope], bool]:
    """Return a test of the expression over names and their values.

    Raises UsageError, the test too where types do not fit; unless `strict` it is false there.
    """
    if len(text) > MAX_LENGTH:
        raise UsageError(f"--expression: longer than {MAX_LENGTH} characters")
    node = _ExpressionParser(text).whole()

    def test(scope: Scope) -> bool:
        try:
            return bool(node(scope))
        except TypeError as failure:
            if not strict:
                return False
            raise UsageError(f"--expression: {failure}") from failure

    return test


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise UsageError(f"--expression: not understood at {text[at:].strip()[:20]!r}")
        kind, token = str(match.lastgroup), str(match[str(match.lastgroup)])
        if kind == "word" and token in _WORD_MARKS:
            kind, token = "mark", _WORD_MARKS[token]
        tokens.append((kind, token))
        at = match.end()
    return tokens


class _ExpressionParser:
    """Parser of an expression, from left to right; each method returns the node that it has read."""

    def __init__(self, text: str) -> None:
        self._left = _tokens(text)[::-1]
        self._depth = 0

    def whole(self) -> Node:
        node = self._choice()
        if self._left:
            raise UsageError(f"--expression: {self._left[-1][1]!r} was not expected there")
        return node

    def _peek(self) -> str:
        """Return the next operator or word, "" for a literal or at the end."""
        return self._left[-1][1] if self._left and self._left[-1][0] in ("mark", "word") else ""

    def _took(self, *marks: str) -> str:
        return self._left.pop()[1] if self._peek() in marks else ""

    def _need(self, mark: str) -> None:
        if not self._took(mark):
            raise UsageError(f"--expression: {mark!r} is missing")

    def _choice(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UsageError(f"--expression: nested deeper than {MAX_DEPTH}")
        test = self._joined()
        if self._took("?"):
            yes = self._choice()
            self._need(":")
            no = self._choice()
            self._depth -= 1
            return lambda scope: yes(scope) if test(scope) else no(scope)
        self._depth -= 1
        return test

    def _joined(self, level: int = 0) -> Node:
        if level == len(_JOINS):
            return self._negated()
        mark, join = _JOINS[level]
        node = self._joined(level + 1)
        while self._took(mark):
            node = join(node, self._joined(level + 1))
        return node

    def _negated(self) -> Node:
        if self._took("!"):
            node = self._negated()
            return lambda scope: not node(scope)
        return self._binary(4)

    def _binary(self, least: int) -> Node:
        node = self._unary()
        while True:
            inverted = self._peek() == "!" and len(self._left) > 1 and self._left[-2][1] == "in"
            if inverted:
                self._left.pop()
            level, apply = OPERATORS.get(self._peek(), (0, None))
            if apply is None or level < least:
                return node
            self._left.pop()
            node = _applied(apply, node, self._binary(level + 1), inverted)

    def _unary(self) -> Node:
        if self._took("-"):
            node = self._unary()
            return lambda scope: -node(scope)
        if self._took("!"):
            inner = self._unary()
            return lambda scope: not inner(scope)
        return self._member(self._single())

    def _member(self, node: Node) -> Node:
        while mark := self._took(".", "?.", "["):
            if mark == "[":
                node = _item(node, self._choice())
                self._need("]")
            elif self._left and self._left[-1][0] == "word":
                node = _item(node, _constant(self._left.pop()[1]))
            else:
                raise UsageError("--expression: a name is missing after '.'")
        return node

    def _single(self) -> Node:
        if self._took("("):
            node = self._choice()
            self._need(")")
            return node
        if self._took("["):
            return self._list()
        if not self._left:
            raise UsageError("--expression: a value is missing at its end")
        kind, token = self._left.pop()
        if kind == "number":
            plain = token.replace("_", "")
            return _constant(float(plain) if "." in plain else int(plain))
        if kind == "text":
            return _constant(token[1:-1] if token[0] == "`" else re.sub(r"\\(.)", _unescaped, token[1:-1]))
        if kind == "mark":
            raise UsageError(f"--expression: {token!r} was not expected there")
        return self._word(token)

    def _word(self, word: str) -> Node:
        if word in _LITERALS:
            return _constant(_LITERALS[word])
        if self._took("("):
            if word not in FUNCTIONS:
                raise UsageError(f"--expression: there is no {word}(), only {', '.join(FUNCTIONS)}")
            argument, function = self._choice(), FUNCTIONS[word]
            self._need(")")
            return lambda scope: function(argument(scope))

        def named(scope: Scope) -> Any:
            if word not in scope:
                raise UsageError(f"--expression: unknown name {word}; there are {', '.join(scope)}")
            return scope[word]

        return named

    def _list(self) -> Node:
        nodes: list[Node] = []
        while not self._took("]"):
            nodes.append(self._choice())
            if not self._took(",") and self._peek() != "]":
                raise UsageError("--expression: ']' is missing")
        return lambda scope: [node(scope) for node in nodes]


def _constant(value: Any) -> Node:
    return lambda scope: value


def _or_else(one: Node, other: Node) -> Node:
    def node(scope: Scope) -> Any:
        value = one(scope)
        return other(scope) if value is None else value

    return node


_JOINS: Final[tuple[tuple[str, Callable[[Node, Node], Node]], ...]] = (
    ("??", _or_else),
    ("||", lambda one, other: lambda scope: bool(one(scope)) or bool(other(scope))),
    ("&&", lambda one, other: lambda scope: bool(one(scope)) and bool(other(scope))),
)
"""Operators between conditions, from the loosest to the tightest."""


def _applied(apply: Callable[[Any, Any], Any], one: Node, other: Node, inverted: bool) -> Node:
    return (lambda scope: not apply(one(scope), other(scope))) if inverted else lambda s: apply(one(s), other(s))


def _unescaped(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t"}.get(match[1], match[1] if match[1] in "\"'\\" else match[0])


def _item(of: Node, at: Node) -> Node:
    return lambda scope: looked_up(of(scope), at(scope))


STREAMS_AT_ONCE = 8
"""Max number of concurrent requests for streams' consumers."""


class SearchMatch(NamedTuple):
    """A stream under test: as the server sent it, typed, the time of its last use, and the present time."""

    raw: Mapping[str, Any]
    info: StreamInfo
    used_ns: int
    now_ns: int


StreamTest = Callable[[SearchMatch], bool]


def _pattern(flag: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as failure:
        raise UsageError(f"{flag}: {text!r} is not a regular expression: {failure}") from failure


def _on_server(text: str) -> StreamTest:
    pattern = _pattern("--server-name", text)

    def test(match: SearchMatch) -> bool:
        cluster = match.info.cluster
        names = (cluster.leader, *(peer.name for peer in cluster.replicas or ())) if cluster is not None else ()
        return any(name and pattern.search(name) for name in names)

    return test


def _in_cluster(text: str) -> StreamTest:
    pattern = _pattern("--cluster", text)
    return lambda one: one.info.cluster is not None and pattern.search(one.info.cluster.name) is not None


def _by_expression(text: str) -> StreamTest:
    condition = compile_condition(text)

    def test(one: SearchMatch) -> bool:
        state, config = one.raw.get("state") or {}, one.raw.get("config") or {}
        return condition({"config": config, "state": state, "info": one.raw, "Info": one.raw})

    return test


CRITERIA: dict[str, Callable[[Any], StreamTest]] = {
    "server_name": _on_server,
    "cluster": _in_cluster,
    "empty": lambda wanted: lambda one: (one.info.state.messages == 0) is wanted,
    "idle": lambda ns: lambda one: one.now_ns - one.used_ns > ns,
    "created": lambda ns: lambda one: one.now_ns - parse_time(one.info.created) > ns,
    "consumers": lambda most: lambda one: most < 0 or one.info.state.consumer_count < most,
    "replicas": lambda most: lambda one: one.info.config.num_replicas <= most,
    "sourced": lambda wanted: lambda one: bool(one.info.config.sources) is wanted,
    "mirrored": lambda wanted: lambda one: (one.info.config.mirror is not None) is wanted,
    "leader": lambda name: lambda one: one.info.cluster is not None and one.info.cluster.leader == name,
    "api_level": lambda least: lambda one: metadata_level(one.info.config.metadata) >= least,
    "expression": _by_expression,
}
"""A test for each criterion, made of its wanted value. `--subject` is not here: the server selects by it."""


async def matching(
    manager: Manager, streams: Sequence[Answer[StreamInfo]], wanted: Mapping[str, Any], *, invert: bool, now_ns: int
) -> list[Answer[StreamInfo]]:
    """Return the streams that meet every criterion, or with `invert` the opposite of every one."""
    tests = [CRITERIA[name](value) for name, value in wanted.items()]
    delivered = await _last_deliveries(manager, streams) if "idle" in wanted else {}

    def meets(answer: Answer[StreamInfo]) -> bool:
        info = answer.value
        used_ns = max(_moment(info.state.last_ts), delivered.get(info.config.name, 0), parse_time(info.created))
        found = SearchMatch(answer.raw, info, used_ns, now_ns)
        return all(test(found) is not invert for test in tests)

    return [stream for stream in streams if meets(stream)]


def _moment(text: str | None) -> int:
    return 0 if text is None or is_zero(text) else parse_time(text)


async def _last_deliveries(manager: Manager, streams: Sequence[Answer[StreamInfo]]) -> dict[str, int]:
    """Return the last delivery of each stream's consumers, ns since the epoch."""
    from natsctl.client.requests import side_by_side

    async def last(stream: str) -> int:
        consumers = await manager.consumer_list(stream)
        return max((_moment(consumer.value.delivered.last_active) for consumer in consumers), default=0)

    names = [one.value.config.name for one in streams if one.value.state.consumer_count]
    return dict(zip(names, await side_by_side(last, names, STREAMS_AT_ONCE), strict=True))


Info = Mapping[str, Any]
ConsumerTest = Callable[[Info], bool]


def _push(info: Info) -> bool:
    return bool((info.get("config") or {}).get("deliver_subject"))


def _fewer(field: str) -> Callable[[int, int], ConsumerTest]:
    return lambda most, now_ns: lambda info: int(info.get(field) or 0) < most


def _idle(least_ns: int, now_ns: int) -> ConsumerTest:
    """Return whether nothing was delivered for that long; a consumer without deliveries is idle since its creation."""

    def test(info: Info) -> bool:
        last = (info.get("delivered") or {}).get("last_active")
        return parse_time(info["created"] if is_zero(last) else str(last)) < now_ns - least_ns

    return test


def _pinned(info: Info) -> bool:
    groups = (info.get("config") or {}).get("priority_groups") or ()
    pinned = {group.get("group") for group in info.get("priority_groups") or () if group.get("pinned_client_id")}
    return bool(groups) and set(groups) <= pinned


def _consumer_condition(text: str, now_ns: int) -> ConsumerTest:
    condition = compile_condition(text)
    return lambda info: condition({"config": info.get("config") or {}, "state": info, "info": info, "Info": info})


CONSUMER_CRITERIA: dict[str, Callable[[Any, int], ConsumerTest]] = {
    "pull": lambda on, now_ns: lambda info: not _push(info),
    "push": lambda on, now_ns: _push,
    "bound": lambda on, now_ns: lambda info: bool(info.get("push_bound" if _push(info) else "num_waiting")),
    "waiting": _fewer("num_waiting"),
    "ack_pending": _fewer("num_ack_pending"),
    "pending": _fewer("num_pending"),
    "idle_ns": _idle,
    "created_ns": lambda ns, now_ns: lambda info: parse_time(info["created"]) < now_ns - ns,
    "replicas": lambda most, now_ns: lambda info: 1 + len((info.get("cluster") or {}).get("replicas") or ()) <= most,
    "leader": lambda name, now_ns: lambda info: str((info.get("cluster") or {}).get("leader") or "") == name,
    "pinned": lambda on, now_ns: _pinned,
    "api_level": lambda least, now_ns: lambda info: metadata_level((info.get("config") or {}).get("metadata")) >= least,
    "expression": _consumer_condition,
}
"""A test of a consumer's information for each criterion, made of its value and the present time."""


def consumer_test(wanted: Mapping[str, Any], now_ns: int, *, invert: bool) -> ConsumerTest:
    """Return whether every criterion holds, or with `invert` none of them. Raises UsageError."""
    tests = [CONSUMER_CRITERIA[name](value, now_ns) for name, value in wanted.items() if value not in ("", False)]
    return lambda info: all(test(info) is not invert for test in tests)
