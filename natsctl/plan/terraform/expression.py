"""What an expression of Terraform comes to: arithmetic, texts, lists and maps, conditions, `for`, and references.

Nothing is asked and no file is read: what would need that has no value, and is told by line and reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from natsctl.plan.asset import Place
from natsctl.plan.terraform.functions import call
from natsctl.plan.terraform.syntax import line_of, text_of
from natsctl.plan.terraform.template import Part, pieces
from natsctl.plan.terraform.values import (
    ExpressionError,
    Named,
    list_of,
    map_of,
    number_of,
    said,
    text_value,
    truth_of,
    whole,
)

if TYPE_CHECKING:
    from tree_sitter import Node

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
        """Return the value of a node of any type."""
        method = _METHODS.get(node.type)
        try:
            if method is None:
                raise ExpressionError(
                    f"{node.type.replace('_', ' ')} can not be worked out here: write its value instead"
                )
            return method(self, node)
        except ExpressionError as error:
            if error.place is None:
                error.place = Place(self.file, line_of(node))
            raise
        except RecursionError as error:
            raise ExpressionError("the expression is too deep", Place(self.file, line_of(node))) from error

    def _expression(self, node: Node) -> Any:
        terms, _ = self._terms(node)
        if len(terms) != 1:
            raise ExpressionError(f"can not read {text_of(node)!r}")
        return self._term(terms[0])

    def _terms(self, node: Node) -> tuple[list[list[Node]], list[str]]:
        """Return the operands among the children, each with the steps behind it, and the operators between them."""
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
        for at, step in enumerate(term[1:], 1):
            if step.type == "splat":
                return [self._steps(one, [*_behind(step), *term[at + 1 :]]) for one in _many(value)]
            value = self._step(value, step)
        return value

    def _steps(self, value: Any, steps: list[Node]) -> Any:
        for step in steps:
            value = self._step(value, step)
        return value

    def _step(self, value: Any, step: Node) -> Any:
        """Return the result of `.NAME` or `[INDEX]`."""
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
        return "".join(self._piece(part) for part in parts)

    def _piece(self, part: Part) -> str:
        return part if isinstance(part, str) else text_value(self.value(part))

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
            raise ExpressionError(f"the function {name} can not be worked out here: write its value instead")
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
    if isinstance(value, Named):
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
