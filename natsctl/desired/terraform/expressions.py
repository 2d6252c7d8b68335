"""Evaluation of Terraform's expressions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

from natsctl.api.locations import Location
from natsctl.desired.terraform.hcl import line_of, text_of

if TYPE_CHECKING:
    from tree_sitter import Node


class ExpressionError(Exception):
    """An expression has no value, with the reason; `place` is its location if known more closely than by the caller."""

    def __init__(self, reason: str, place: Location | None = None) -> None:
        super().__init__(reason)
        self.place = place


@runtime_checkable
class AttributeSource(Protocol):
    """A value with attributes evaluated on demand: `var`, `local`, a resource."""

    def attribute(self, name: str) -> Any:
        """Return one of them. Raises ExpressionError."""


class Loop(AttributeSource):
    """`each`, `count` and the iterators of dynamic blocks, by name."""

    def __init__(self, word: str, values: Mapping[str, Any]) -> None:
        self._word = word
        self._values = values

    def attribute(self, name: str) -> Any:
        if name not in self._values:
            raise ExpressionError(f"{self._word} has no {name}")
        return self._values[name]


def number_of(value: Any) -> int | float:
    """Return a number, also from text that is one. Raises ExpressionError."""
    if isinstance(value, str):
        try:
            return whole(float(value)) if any(mark in value for mark in ".eE") else int(value)
        except (ValueError, OverflowError) as error:
            raise ExpressionError(f"expected a number, got {value!r}") from error
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ExpressionError(f"expected a number, got {said(value)}")
    return value


def whole(value: int | float) -> int | float:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def truth_of(value: Any) -> bool:
    """Return true or false, also from text. Raises ExpressionError."""
    words = {"true": True, "false": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in words:
        return words[value]
    raise ExpressionError(f"expected true or false, got {said(value)}")


def text_value(value: Any) -> str:
    """Return a text, also from a number or a truth. Raises ExpressionError."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(whole(value))
    raise ExpressionError(f"expected a text, got {said(value)}")


def list_of(value: Any) -> list[Any]:
    """Return a list; a map has its values, in the order of its keys. Raises ExpressionError."""
    if isinstance(value, dict):
        return [value[key] for key in sorted(value)]
    if not isinstance(value, list):
        raise ExpressionError(f"expected a list, got {said(value)}")
    return value


def map_of(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ExpressionError(f"expected a map, got {said(value)}")
    return value


def said(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, AttributeSource):
        return "a whole resource"
    return repr(value) if isinstance(value, str) else text_value(value)


Part: TypeAlias = "str | Node"

_ESCAPE: Final = re.compile(r'\\(?:([nrt"\\])|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))|\$\$\{|%%\{')
_BRACE: Final = re.compile(r"\$\$\{|%%\{")
_CHARS: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}


def pieces(node: Node) -> list[Part]:
    """Return texts, unescaped, and the expressions of `${…}`.

    Raises ExpressionError for directives such as `%{ if … }`.
    """
    if node.type == "heredoc_template":
        return _heredoc(node)
    start, end = node.children[0].end_byte, node.children[-1].start_byte
    raw = _raw(node, start, end)
    return [part if not isinstance(part, str) else _ESCAPE.sub(_escaped, part) for part in raw if part != ""]


def _raw(node: Node, start: int, end: int) -> list[Part]:
    """Return raw texts and expressions, cut by position, because the parser drops the spaces around expressions."""
    source, at = node.text or b"", start
    parts: list[Part] = []
    for child in node.named_children:
        if child.type == "template_directive":
            raise ExpressionError("directives such as %{ if } cannot be evaluated here: write the text instead")
        if child.type == "template_interpolation":
            parts.append(source[at - node.start_byte : child.start_byte - node.start_byte].decode())
            parts.append(_inner(child))
            at = child.end_byte
    parts.append(source[at - node.start_byte : end - node.start_byte].decode())
    return parts


def _inner(interpolation: Any) -> Any:
    inner = next((child for child in interpolation.named_children if child.type == "expression"), None)
    if inner is None:
        raise ExpressionError(f"cannot read {text_of(interpolation)!r}")
    return inner


def _heredoc(node: Node) -> list[Part]:
    """Return the lines between the two markers; after `<<-` without the indentation that all of them share."""
    opening, closing = (child for child in node.children if child.type == "heredoc_identifier")
    source = node.text or b""
    start = source.index(b"\n", opening.end_byte - node.start_byte) + 1 + node.start_byte
    end = source.rindex(b"\n", 0, closing.start_byte - node.start_byte) + 1 + node.start_byte
    parts = _raw(node, start, max(start, end))
    if text_of(node.children[0]).startswith("<<-"):
        parts = _dedented(parts)
    return [part if not isinstance(part, str) else _BRACE.sub(lambda found: found[0][1:], part) for part in parts]


def _dedented(parts: list[Part]) -> list[Part]:
    marked = "".join(part if isinstance(part, str) else "\0" for part in parts)
    lines = [line for line in marked.split("\n") if line.strip(" \t")]
    least = min((len(line) - len(line.lstrip(" \t")) for line in lines), default=0)
    texts = "\n".join(line[least:] for line in marked.split("\n")).split("\0")
    inner = [part for part in parts if not isinstance(part, str)]
    mixed: list[Part] = [texts[0]]
    for expression, text in zip(inner, texts[1:], strict=True):
        mixed += [expression, text]
    return mixed


def _escaped(found: re.Match[str]) -> str:
    if found[0].endswith("{"):
        return found[0][1:]
    return _CHARS[found[1]] if found[1] else chr(int(found[2] or found[3], 16))


MAX_RANGE: Final = 1024
"""The most numbers of one `range`, as in Terraform."""


def call(name: str, arguments: list[Any]) -> Any:
    """Return the result of a function. Raises ExpressionError for an unknown one, or for wrong arguments."""
    function = _FUNCTIONS.get(name)
    if function is None:
        raise ExpressionError(f"the function {name} cannot be evaluated here: write its value instead")
    try:
        return function(*arguments)
    except (TypeError, ValueError, IndexError, KeyError, OverflowError) as error:
        raise ExpressionError(f"{name}: wrong arguments") from error


def _unique(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if item not in found:
            found.append(item)
    return found


def _set(items: list[Any]) -> list[Any]:
    """Return the values of a set in the order of its texts."""
    return sorted(_unique(list_of(items)), key=lambda item: (str(type(item)), item))


def _flat(items: list[Any]) -> list[Any]:
    flat: list[Any] = []
    for item in list_of(items):
        flat += _flat(item) if isinstance(item, list) else [item]
    return flat


def _merged(*maps: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for one in maps:
        merged |= map_of(one)
    return merged


def _coalesced(*values: Any) -> Any:
    return next(value for value in values if value not in (None, ""))


def _looked_up(where: dict[str, Any], key: str, *default: Any) -> Any:
    return map_of(where)[key] if not default else map_of(where).get(key, default[0])


def _formatted(pattern: str, *values: Any) -> str:
    """Return `format` with %s, %d, %v, %q and widths: the subset that Python's formatting has as well."""
    wanted = pattern.replace("%v", "%s").replace("%q", '"%s"')
    words = [text_value(value) if isinstance(value, bool) or value is None else value for value in values]
    return wanted % tuple(words)


def _numbers(*bounds: int) -> list[int]:
    numbers = range(*bounds)
    if len(numbers) > MAX_RANGE:
        raise ExpressionError(f"range: more than {MAX_RANGE} numbers")
    return list(numbers)


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "abs": lambda value: abs(number_of(value)),
    "ceil": lambda value: math.ceil(number_of(value)),
    "coalesce": _coalesced,
    "compact": lambda items: [item for item in list_of(items) if item not in (None, "")],
    "concat": lambda *lists: [item for one in lists for item in list_of(one)],
    "contains": lambda items, item: item in list_of(items),
    "distinct": lambda items: _unique(list_of(items)),
    "element": lambda items, index: list_of(items)[index % len(items)],
    "endswith": lambda text, end: text_value(text).endswith(end),
    "flatten": _flat,
    "floor": lambda value: math.floor(number_of(value)),
    "format": _formatted,
    "join": lambda separator, items: text_value(separator).join(text_value(item) for item in list_of(items)),
    "jsondecode": lambda text: json.loads(text_value(text)),
    "jsonencode": lambda value: json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False),
    "keys": lambda where: sorted(map_of(where)),
    "length": len,
    "lookup": _looked_up,
    "lower": lambda text: text_value(text).lower(),
    "max": lambda *values: max(number_of(value) for value in values),
    "merge": _merged,
    "min": lambda *values: min(number_of(value) for value in values),
    "parseint": lambda value, base: int(text_value(value), base),
    "pow": lambda base, power: whole(math.pow(number_of(base), number_of(power))),
    "range": _numbers,
    "replace": lambda text, old, new: text_value(text).replace(old, new),
    "reverse": lambda items: list_of(items)[::-1],
    "sort": lambda items: sorted(text_value(item) for item in list_of(items)),
    "split": lambda separator, text: text_value(text).split(separator) if text else [],
    "startswith": lambda text, start: text_value(text).startswith(start),
    "substr": lambda text, at, size: text_value(text)[at:] if size < 0 else text_value(text)[at : at + size],
    "title": lambda text: text_value(text).title(),
    "tobool": truth_of,
    "tolist": list_of,
    "tomap": map_of,
    "tonumber": number_of,
    "toset": _set,
    "tostring": text_value,
    "trim": lambda text, marks: text_value(text).strip(marks),
    "trimprefix": lambda text, prefix: text_value(text).removeprefix(prefix),
    "trimspace": lambda text: text_value(text).strip(),
    "trimsuffix": lambda text, suffix: text_value(text).removesuffix(suffix),
    "upper": lambda text: text_value(text).upper(),
    "values": list_of,
}


Scope = Mapping[str, Any]
"""The values of the first name in a reference."""

_POSTFIXES: Final = frozenset(("get_attr", "index", "splat"))
_SKIPPED: Final = frozenset(("comment", "ellipsis", ",", "function_arguments"))


class Evaluator:
    """Evaluator of the expressions of one file; every method raises ExpressionError with the location of the fault."""

    def __init__(self, file: str, scope: Scope) -> None:
        self.file = file
        self.scope = scope

    def within(self, **names: Any) -> Evaluator:
        """Return the same with more names in scope."""
        return Evaluator(self.file, {**self.scope, **names})

    def value(self, node: Node) -> Any:
        method = _METHODS.get(node.type)
        try:
            if method is None:
                raise ExpressionError(
                    f"{node.type.replace('_', ' ')} cannot be evaluated here: write its value instead"
                )
            return method(self, node)
        except ExpressionError as error:
            if error.place is None:
                error.place = Location(self.file, line_of(node))
            raise
        except RecursionError as error:
            raise ExpressionError("the expression is too deep", Location(self.file, line_of(node))) from error

    def _expression(self, node: Node) -> Any:
        terms, _ = self._terms(node)
        if len(terms) != 1:
            raise ExpressionError(f"cannot read {text_of(node)!r}")
        return self._term(terms[0])

    def _terms(self, node: Node) -> tuple[list[list[Node]], list[str]]:
        """Return the operands among the children, each with its access steps, and the operators between them."""
        terms: list[list[Node]] = []
        operators: list[str] = []
        for child in node.children:
            if child.type in _POSTFIXES:
                terms[-1].append(child)
            elif child.is_named and child.type not in _SKIPPED:
                terms.append([child])
            elif not child.is_named and child.type not in ("(", ")"):
                operators.append(child.type)
        return terms, operators

    def _term(self, term: list[Node]) -> Any:
        value = self.value(term[0])
        for number, step in enumerate(term[1:], 1):
            if step.type == "splat":
                return [self._steps(one, [*_behind(step), *term[number + 1 :]]) for one in _many(value)]
            value = self._step(value, step)
        return value

    def _steps(self, value: Any, steps: list[Node]) -> Any:
        for step in steps:
            value = self._step(value, step)
        return value

    def _step(self, value: Any, step: Node) -> Any:
        if step.type == "get_attr":
            return _look(value, text_of(step.named_children[-1]))
        inner = step.named_children[0]
        key = self.value(inner.named_children[0]) if inner.type == "new_index" else int(text_of(inner).lstrip("."))
        return _look(value, key)

    def _variable(self, node: Node) -> Any:
        name = text_of(node)
        if name not in self.scope:
            raise ExpressionError(
                f"{name} is not known here: only variables, locals and the resources of these files are"
            )
        return self.scope[name]

    def _literal(self, node: Node) -> Any:
        return self.value(node.named_children[0])

    def _number(self, node: Node) -> Any:
        text = text_of(node)
        return whole(float(text)) if any(mark in text for mark in ".eE") else int(text)

    def _template(self, node: Node) -> Any:
        """Return a text; one that is an interpolation and nothing else keeps its type."""
        parts = pieces(node)
        if len(parts) == 1 and not isinstance(parts[0], str):
            return self.value(parts[0])
        return "".join(part if isinstance(part, str) else text_value(self.value(part)) for part in parts)

    def _object(self, node: Node) -> dict[str, Any]:
        found = {}
        for pair in (child for child in node.named_children if child.type == "object_elem"):
            key, value = (child for child in pair.named_children if child.type == "expression")
            found[self._key(key)] = self.value(value)
        return found

    def _key(self, node: Node) -> str:
        """Return the key of an object: a bare word is a text, everything else an expression."""
        only = node.named_children[0]
        bare = len(node.children) == 1 and only.type == "variable_expr"
        return text_of(only) if bare else text_value(self.value(node))

    def _tuple(self, node: Node) -> list[Any]:
        return [self.value(child) for child in node.named_children if child.type == "expression"]

    def _binary(self, node: Node) -> Any:
        terms, operators = self._terms(node)
        left = self._term(terms[0])
        if operators[0] in ("&&", "||"):
            return truth_of(left) if truth_of(left) is (operators[0] == "||") else truth_of(self._term(terms[1]))
        return _OPERATORS[operators[0]](left, self._term(terms[1]))

    def _unary(self, node: Node) -> Any:
        terms, operators = self._terms(node)
        value = self._term(terms[0])
        return not truth_of(value) if operators[0] == "!" else -number_of(value)

    def _conditional(self, node: Node) -> Any:
        condition, yes, no = (child for child in node.named_children if child.type == "expression")
        return self.value(yes if truth_of(self.value(condition)) else no)

    def _call(self, node: Node) -> Any:
        name = text_of(node.named_children[0])
        if name in ("try", "can"):
            raise ExpressionError(f"the function {name} cannot be evaluated here: write its value instead")
        arguments: list[Any] = []
        for child in _arguments(node):
            if child.type == "ellipsis":
                arguments += list_of(arguments.pop())
            elif child.type == "expression":
                arguments.append(self.value(child))
        return call(name, arguments)

    def _for(self, node: Node) -> Any:
        loop = node.named_children[0]
        intro = next(child for child in loop.named_children if child.type == "for_intro")
        names = [text_of(child) for child in intro.named_children if child.type == "identifier"]
        source = self.value(next(child for child in intro.named_children if child.type == "expression"))
        bodies = [child for child in loop.named_children if child.type == "expression"]
        only = next((child for child in loop.named_children if child.type == "for_cond"), None)
        inners = [self.within(**bound) for bound in _bindings(names, source)]
        if only is not None:
            inners = [inner for inner in inners if truth_of(inner.value(only.named_children[-1]))]
        if loop.type == "for_tuple_expr":
            return [inner.value(bodies[0]) for inner in inners]
        pairs = [(text_value(inner.value(bodies[0])), inner.value(bodies[1])) for inner in inners]
        grouped = any(child.type == "ellipsis" for child in loop.named_children)
        return {key: [v for k, v in pairs if k == key] for key, _ in pairs} if grouped else dict(pairs)


def _bindings(names: list[str], source: Any) -> list[dict[str, Any]]:
    """Return the values of a `for`'s names, in each of its rounds."""
    pairs = sorted(source.items()) if isinstance(source, dict) else list(enumerate(list_of(source)))
    return [dict(zip(names[-2:], pair if len(names) > 1 else pair[1:], strict=True)) for pair in pairs]


def _arguments(call: Node) -> list[Node]:
    lists = (child for child in call.named_children if child.type == "function_arguments")
    return [child for one in lists for child in one.children]


def _behind(splat: Node) -> list[Node]:
    return [child for child in splat.named_children[0].named_children if child.type in _POSTFIXES]


def _many(value: Any) -> list[Any]:
    """Return the items of a splat: a single value counts as a list of it, null as none."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _look(value: Any, key: Any) -> Any:
    if isinstance(value, AttributeSource):
        return value.attribute(text_value(key))
    if isinstance(value, list):
        index = number_of(key)
        if isinstance(index, float) or not 0 <= index < len(value):
            raise ExpressionError(f"the list has no element {said(key)}")
        return value[index]
    where, name = map_of(value), text_value(key)
    if name not in where:
        raise ExpressionError(f"the map has no {name!r}")
    return where[name]


def _quotient(left: Any, right: Any) -> int | float:
    above, below = number_of(left), number_of(right)
    if not below:
        raise ExpressionError("division by zero")
    if isinstance(above, int) and isinstance(below, int) and above % below == 0:
        return above // below
    return whole(above / below)


def _rest(left: Any, right: Any) -> int | float:
    above, below = number_of(left), number_of(right)
    if not below:
        raise ExpressionError("division by zero")
    return whole(above - below * int(above / below))


_OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": lambda left, right: whole(number_of(left) + number_of(right)),
    "-": lambda left, right: whole(number_of(left) - number_of(right)),
    "*": lambda left, right: whole(number_of(left) * number_of(right)),
    "/": _quotient,
    "%": _rest,
    "==": lambda left, right: type(left) is type(right) and left == right,
    "!=": lambda left, right: type(left) is not type(right) or left != right,
    "<": lambda left, right: number_of(left) < number_of(right),
    "<=": lambda left, right: number_of(left) <= number_of(right),
    ">": lambda left, right: number_of(left) > number_of(right),
    ">=": lambda left, right: number_of(left) >= number_of(right),
}
_METHODS: Final[Mapping[str, Callable[[Evaluator, Any], Any]]] = {
    "expression": Evaluator._expression,
    "variable_expr": Evaluator._variable,
    "literal_value": Evaluator._literal,
    "operation": Evaluator._literal,
    "collection_value": Evaluator._literal,
    "numeric_lit": Evaluator._number,
    "bool_lit": lambda evaluator, node: text_of(node) == "true",
    "null_lit": lambda evaluator, node: None,
    "string_lit": Evaluator._template,
    "template_expr": Evaluator._literal,
    "quoted_template": Evaluator._template,
    "heredoc_template": Evaluator._template,
    "object": Evaluator._object,
    "tuple": Evaluator._tuple,
    "binary_operation": Evaluator._binary,
    "unary_operation": Evaluator._unary,
    "conditional": Evaluator._conditional,
    "function_call": Evaluator._call,
    "for_expr": Evaluator._for,
}
