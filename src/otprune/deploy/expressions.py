"""The expressions in a .pt2: numbers and sizes, and nothing that torch, which evaluates them as Python, could run."""

import ast
import math
import re

# No line break, comment, backslash or double quote: torch cuts lines out of these texts, and puts them between quotes.
CHARACTERS = re.compile(r"[\w ()\[\].,:+*/%<>=!'-]*", re.ASCII)
SYMBOL = re.compile(r"[a-zA-Z]\w*", re.ASCII)
KEY = re.compile(r"[\w .:/-]*", re.ASCII)
FUNCTIONS = {
    *("Integer", "Add", "Mul", "Max", "Min", "Mod", "PythonMod", "FloorDiv", "CleanDiv", "CeilDiv"),
    *("ModularIndexing", "Eq", "Ne", "Ge", "Gt", "Le", "Lt", "Equality", "Unequality", "StrictLessThan", "LessThan"),
}
METHODS = {"size", "stride", "storage_offset"}
# A power of powers would never come to an end.
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)


def is_expression(text: str) -> bool:
    """Whether a text is made of sums, products and comparisons of numbers, symbols and sizes of inputs alone.

    >>> is_expression("2*Symbol('s77', positive=True, integer=True)"), is_expression("L['x'].size()[0] <= 8")
    (True, True)
    >>> is_expression("Max('exit()', 1)")
    False
    """
    return CHARACTERS.fullmatch(text) is not None and _is_number(ast.parse(text, mode="eval").body)


def is_key(text: str) -> bool:
    """Whether a text may be a key of an input that is a dict: torch writes keys into code.

    >>> is_key("left image"), is_key("'] or exit() or ['")
    (True, False)
    """
    return KEY.fullmatch(text) is not None


def _is_number(node: ast.expr) -> bool:
    match node:
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
        case ast.BinOp(left=left, op=op, right=right):
            return isinstance(op, OPERATORS) and _is_number(left) and _is_number(right)
        case ast.Compare(left=left, comparators=others):
            return _is_number(left) and all(map(_is_number, others))
        case ast.BoolOp(values=values):
            return all(map(_is_number, values))
    return _is_literal(node) or _is_call(node) or _is_symbol(node) or _is_size(node) or _is_input(node)


def _is_literal(node: ast.expr) -> bool:
    """Of a finite number."""
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and abs(node.value) < math.inf


def _is_call(node: ast.expr) -> bool:
    """Of a function that takes numbers. Texts are not among them: what is given to these functions is evaluated."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return name in FUNCTIONS and all(map(_is_number, args))
    return False


def _is_symbol(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name))], keywords=assumptions):
            return SYMBOL.fullmatch(name) is not None and all(_is_literal(one.value) for one in assumptions)
    return False


def _is_size(node: ast.expr) -> bool:
    """Of an input, all of it or one number."""
    match node:
        case ast.Subscript(value=value, slice=ast.Constant(value=int())):
            return _is_size(value)
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=args, keywords=[]):
            return name in METHODS and _is_input(value) and all(map(_is_literal, args))
    return False


def _is_input(node: ast.expr) -> bool:
    match node:
        case ast.Subscript(value=value, slice=ast.Constant(value=int() | str() as key)):
            return (isinstance(key, int) or is_key(key)) and (_is_input(value) or _is_all_inputs(value))
    return False


def _is_all_inputs(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "L"
