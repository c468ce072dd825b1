"""A small language for formulas over the values of regions and conditions: numbers, comparisons and names."""

from __future__ import annotations

import ast
import difflib
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np

from neuroledger.data.arrays import Array
from neuroledger.errors import MetricError

__all__ = ["Formula", "parse"]

# A place in the notation of SyntaxGym: (region;%condition%), with * for all regions of an item.
PLACE = re.compile(r"\(\s*([\w.-]+|\*)\s*;\s*%([^%]+)%\s*\)")
# The names that stand for places in the parsed text.
NAMED = re.compile(r"place_(\d+)")
LONGEST = 2000
DEEPEST = 40
LARGEST = 1e300

# The values of a part of a formula: one for each item, or a number.
Values = Array | float

UNARY: Mapping[type[ast.AST], Callable[..., Values]] = {
    ast.Not: np.logical_not,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
JOINED: Mapping[type[ast.AST], Callable[[Values, Values], Values]] = {
    ast.And: np.logical_and,
    ast.Or: np.logical_or,
}
BINARY: Mapping[type[ast.AST], Callable[[Values, Values], Values]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
}
COMPARED: Mapping[type[ast.AST], Callable[[Values, Values], Values]] = {
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}
FUNCTIONS: Mapping[str, tuple[int, Callable[..., Values]]] = {
    "abs": (1, np.abs),
    "exp": (1, np.exp),
    "log": (1, np.log),
    "max": (2, np.maximum),
    "min": (2, np.minimum),
    "sqrt": (1, np.sqrt),
}


@dataclass(frozen=True)
class Formula:
    """A parsed formula.

    Attributes
    ----------
    text
        The source text.
    places
        The ``(region, condition)`` pairs in the formula, in order; the region ``*`` is the sum over all regions.
    logical
        Whether its value is true or false rather than a number.
    """

    text: str
    places: tuple[tuple[str, str], ...]
    logical: bool
    _tree: ast.expr

    def __call__(self, values: Mapping[tuple[str, str], Array]) -> Array:
        """Return the value for each item, from the values of the places ``(item,)``.

        Raises
        ------
        MetricError
            A place has no values, or a part of the formula is undefined for an item (a division by 0, the logarithm of a
            negative number, a missing value).
        """
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            return np.asarray(_value(self._tree, self, values))


def parse(text: str) -> Formula:
    """Parse a formula.

    A formula consists of numbers, ``+ - * /``, comparisons (``=`` is equality), ``and``/``&``, ``or``/``|``, ``not``,
    parentheses or brackets, the functions abs, exp, log, max, min and sqrt, and places ``(region;%condition%)``.

    Raises
    ------
    MetricError
        The text contains anything else; the message quotes it.
    """
    if len(text) > LONGEST:
        raise MetricError(
            f"a formula has {len(text)} characters; at most {LONGEST} are read"
        )
    places: list[tuple[str, str]] = []

    def place(match: re.Match[str]) -> str:
        parsed = (match[1], match[2].strip())
        if parsed not in places:
            places.append(parsed)
        return f" place_{places.index(parsed)} "

    if internal := NAMED.search(PLACE.sub(" ", text)):
        raise MetricError(
            f"formula {text!r}: {internal[0]!r} is not part of the language"
        )
    plain = PLACE.sub(place, text)
    if stray := re.search(r"[;%]", plain):
        raise MetricError(
            f"formula {text!r}: {stray[0]!r} is not part of a place; places are written (region;%condition%)"
        )
    plain = (
        plain.replace("[", "(")
        .replace("]", ")")
        .replace("&", " and ")
        .replace("|", " or ")
    )
    plain = re.sub(r"(?<![<>=!])=(?!=)", "==", plain).strip()
    try:
        tree = ast.parse(plain, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise MetricError(
            f"formula {text!r} is not written correctly: {getattr(error, 'msg', error)}"
        ) from None
    logical = _kind(tree, text, places, 0)
    if not places:
        raise MetricError(
            f"formula {text!r} names no place; places are written (region;%condition%)"
        )
    return Formula(text, tuple(places), logical, tree)


def _shown(node: ast.expr, places: Sequence[tuple[str, str]]) -> str:
    """Return a part of a formula as it is written, with its places."""
    return NAMED.sub(
        lambda name: f"({places[int(name[1])][0]};%{places[int(name[1])][1]}%)",
        ast.unparse(node),
    )


def _kind(
    node: ast.expr, text: str, places: Sequence[tuple[str, str]], depth: int
) -> bool:
    """Return whether a node is logical (true or false); refuse a node that is not part of the language."""
    if depth > DEEPEST:
        raise MetricError(f"formula {text!r} is nested deeper than {DEEPEST} levels")
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(
            number, bool
        ):
            if not -LARGEST <= number <= LARGEST:
                raise MetricError(
                    f"formula {text!r} contains a number beyond {LARGEST:g}"
                )
            return False
        case ast.Name(id=name) if NAMED.fullmatch(name):
            return False
    operation = _operation(node, text)
    if operation is None:
        raise MetricError(
            f"formula {text!r}: {_shown(node, places)!r} is not part of the language (numbers, + - * /, comparisons, and, "
            f"or, not, {', '.join(FUNCTIONS)}, places)"
        )
    for operand in operation.operands:
        if _kind(operand, text, places, depth + 1) != operation.takes_logical:
            expected = "a comparison" if operation.takes_logical else "a number"
            raise MetricError(
                f"formula {text!r}: {_shown(operand, places)!r} must be {expected}"
            )
    return operation.is_logical


class _Operation(NamedTuple):
    operands: Sequence[ast.expr]
    takes_logical: bool
    is_logical: bool


def _operation(node: ast.expr, text: str) -> _Operation | None:
    """Return the operation of a node; None if it is none of the language."""
    match node:
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _Operation([operand], False, False)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _Operation([operand], True, True)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            return _Operation([left, right], False, False)
        case ast.Compare(left=left, ops=ops, comparators=others) if (
            COMPARED.keys() >= set(map(type, ops))
        ):
            return _Operation([left, *others], False, True)
        case ast.BoolOp(values=parts):
            return _Operation(parts, True, True)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if (
            name in FUNCTIONS
        ):
            count = FUNCTIONS[name][0]
            is_starred = ast.Starred in map(type, arguments)
            if len(arguments) != count or is_starred:
                raise MetricError(f"formula {text!r}: {name} takes {count} arguments")
            return _Operation(arguments, False, False)
    return None


def _value(
    node: ast.expr, formula: Formula, values: Mapping[tuple[str, str], Array]
) -> Values:
    """Return the value of a node for each item; a value that is not defined is an error."""
    result = _computed(node, formula, values)
    if (undefined := np.isnan(result)).any():
        raise MetricError(
            f"formula {formula.text!r}: {_shown(node, formula.places)!r} is undefined for item number "
            f"{int(np.argmax(undefined)) + 1}"
        )
    return result


def _computed(
    node: ast.expr, formula: Formula, values: Mapping[tuple[str, str], Array]
) -> Values:
    def value(part: ast.expr) -> Values:
        return _value(part, formula, values)

    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return _at_place(formula.places[int(name[6:])], values)
        case ast.UnaryOp(op=op, operand=operand):
            return UNARY[type(op)](value(operand))
        case ast.BinOp(left=left, op=op, right=right):
            first = value(left)
            second = value(right)
            if isinstance(op, ast.Div):
                _require_divisor(second, right, formula)
            return BINARY[type(op)](first, second)
        case ast.Compare(left=left, ops=ops, comparators=others):
            chain = list(map(value, (left, *others)))
            pairs = zip(ops, chain[:-1], chain[1:], strict=True)
            return reduce(
                np.logical_and, [COMPARED[type(op)](a, b) for op, a, b in pairs]
            )
        case ast.BoolOp(op=op, values=parts):
            return reduce(JOINED[type(op)], map(value, parts))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return FUNCTIONS[name][1](*map(value, arguments))
    raise MetricError("a node that `parse` refuses")


def _require_divisor(values: Values, node: ast.expr, formula: Formula) -> None:
    if np.any(values == 0):
        raise MetricError(
            f"formula {formula.text!r} divides by {_shown(node, formula.places)!r}, which is 0 for item number "
            f"{int(np.argmax(np.atleast_1d(values) == 0)) + 1}"
        )


def _at_place(place: tuple[str, str], values: Mapping[tuple[str, str], Array]) -> Array:
    if place in values:
        return values[place]
    wanted = f"({place[0]};%{place[1]}%)"
    available = [f"({region};%{condition}%)" for region, condition in values]
    near = difflib.get_close_matches(wanted, available, 2, 0.5)
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"there are {', '.join(available[:8])}"
    )
    raise MetricError(f"no value for {wanted}: {hint}")
