"""Conditions over an information document: `state.messages > 1000 && config.name matches "^ORDERS"`.

The words are those of expr-lang, which the `nats` tool uses: `and or not && || !`, comparisons, `in`, `contains`,
`startsWith`, `endsWith`, `matches`, `??`, `? :`, arithmetic, `len lower upper`, lists and members. Nothing but these
three functions can be called, so an expression can compute a value and do nothing else. A member that is absent is nil,
and beside a number 0, as documents leave zeroes out; members are found in Go's spelling too (`Info.Config.MaxMsgs`).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from natsctl.api.errors import UsageError

MAX_MATCHED: Final = 100_000
"""Characters of a text that a pattern is tried on."""
_GO_NAMES: Final = {"msgs": "messages", "firsttime": "firstts", "lasttime": "lastts", "consumers": "consumercount"}
"""Members of Go's structs whose JSON key is another word."""


def _contains(text: Any, part: Any) -> bool:
    return isinstance(text, str) and isinstance(part, str) and part in text


def _is_in(item: Any, of: Any) -> bool:
    return of is not None and item in of


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
    "in": (4, _is_in),
    "contains": (4, _contains),
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
    """Return the member or item, nil where there is none."""
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
"""Characters of an expression: far more than anybody types, and few enough to recurse over."""
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


def compile_condition(text: str) -> Callable[[Scope], bool]:
    """Return a test of the expression over names and their values.

    Raises UsageError, the test too where types do not fit.
    """
    if len(text) > MAX_LENGTH:
        raise UsageError(f"--expression: longer than {MAX_LENGTH} characters")
    node = _Parser(text).whole()

    def test(scope: Scope) -> bool:
        try:
            return bool(node(scope))
        except TypeError as failure:
            raise UsageError(f"--expression: {failure}") from failure

    return test


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise UsageError(f"--expression: not understood at {text[at:].strip()[:20]!r}")
        kind, token = str(match.lastgroup), str(match[str(match.lastgroup)])
        if kind == "word" and token in _WORD_MARKS:
            kind, token = "mark", _WORD_MARKS[token]
        found.append((kind, token))
        at = match.end()
    return found


class _Parser:
    """Reads an expression from left to right; each method returns the node of what it has read."""

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
        test = self._fallback()
        if self._took("?"):
            yes = self._choice()
            self._need(":")
            no = self._choice()
            self._depth -= 1
            return lambda scope: yes(scope) if test(scope) else no(scope)
        self._depth -= 1
        return test

    def _fallback(self) -> Node:
        node = self._either()
        while self._took("??"):
            node = _or_else(node, self._either())
        return node

    def _either(self) -> Node:
        node = self._both()
        while self._took("||"):
            node = _either(node, self._both())
        return node

    def _both(self) -> Node:
        node = self._negated()
        while self._took("&&"):
            node = _both(node, self._negated())
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
            raise UsageError("--expression: it ends where a value is needed")
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


def _either(one: Node, other: Node) -> Node:
    return lambda scope: bool(one(scope)) or bool(other(scope))


def _both(one: Node, other: Node) -> Node:
    return lambda scope: bool(one(scope)) and bool(other(scope))


def _applied(apply: Callable[[Any, Any], Any], one: Node, other: Node, inverted: bool) -> Node:
    return (lambda scope: not apply(one(scope), other(scope))) if inverted else lambda s: apply(one(s), other(s))


def _unescaped(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t"}.get(match[1], match[1] if match[1] in "\"'\\" else match[0])


def _item(of: Node, at: Node) -> Node:
    return lambda scope: looked_up(of(scope), at(scope))
