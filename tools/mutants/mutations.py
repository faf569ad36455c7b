"""What can be broken in a line of Python, one small change at a time."""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["Mutant", "choose", "mutants_of"]

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COMPUTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of a file: the bytes from ``start`` to ``end`` become ``after``."""

    path: str
    function: str
    line: int
    start: int
    end: int
    before: str
    after: str

    @property
    def key(self) -> str:
        """What it changes, wherever in the function that is."""
        return f"{self.path}:{self.function}: {self.before} -> {self.after}"

    def applied(self, source: bytes) -> bytes:
        """Return the file with the change."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def choose(mutants: Collection[Mutant], row: str, others: Mapping[tuple[str, int], int], most: int) -> list[Mutant]:
    """Choose mutants of a row: those in lines that the fewest other rows run, as what all run is not its behaviour.

    Of those alike, one of a line before a second one of any, and else by a hash of row and change: a change of the
    product has others chosen only where it is.

    Args:
        others: by path and line, how many rows run it.
    """

    def rank(mutant: Mutant) -> bytes:
        return hashlib.sha256(f"{row} {mutant.key}".encode()).digest()

    of_line: dict[tuple[str, int], int] = {}
    ranked = []
    for mutant in sorted(mutants, key=rank):
        place = (mutant.path, mutant.line)
        of_line[place] = of_line.get(place, 0) + 1
        ranked.append(((others[place], of_line[place], rank(mutant)), mutant))
    return [mutant for _, mutant in sorted(ranked, key=lambda each: each[0])[:most]]


def mutants_of(path: str, source: bytes, lines: Collection[int]) -> list[Mutant]:
    """Return what can be changed in these lines of functions of a file; each change compiles."""
    return [mutant for mutant in _Changes(path, source, lines).found if _compiles(mutant.applied(source))]


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


class _Changes(ast.NodeVisitor):
    """Collects changes of nodes in the bodies of functions; not of docstrings, annotations, f-strings and asserts."""

    def __init__(self, path: str, source: bytes, lines: Collection[int]) -> None:
        self.found: list[Mutant] = []
        self._path, self._source, self._lines = path, source, lines
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._names: list[str] = []
        self._in_function = False
        self.visit(ast.parse(source))

    def _change(self, node: ast.expr | ast.stmt, after: str) -> None:
        if not self._in_function or node.lineno not in self._lines:
            return
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        before = " ".join(self._source[start:end].decode().split())
        name = ".".join(self._names)
        self.found.append(Mutant(self._path, name, node.lineno, start, end, before, after))

    def _of_body(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, *, function: bool) -> None:
        self._names.append(node.name)
        around, self._in_function = self._in_function, function
        for each in node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body:
            self.visit(each)
        self._in_function = around
        self._names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._of_body(node, function=True)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._of_body(node, function=True)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._of_body(node, function=False)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Not changed: it says what is certain."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Not changed: before Python 3.12 the places of its parts are wrong."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            changed = ast.Compare(node.left, [_COMPARED[type(node.ops[0])]()], node.comparators)
            self._change(node, f"({ast.unparse(changed)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in _COMPUTED:
            self._change(node, f"({ast.unparse(ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right))})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._change(node, f"({ast.unparse(ast.BoolOp(other, node.values))})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._change(node, f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        """Negate a condition that is no comparison, of which `visit_Compare` makes the opposite."""
        if not isinstance(test, ast.Compare | ast.UnaryOp | ast.NamedExpr):
            self._change(test, f"(not ({ast.unparse(test)}))")

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._change(node, repr(not value))
        elif isinstance(value, int | float):
            self._change(node, repr(value + 1))
        elif isinstance(value, str):
            self._change(node, repr(value + "x"))
        elif isinstance(value, bytes):
            self._change(node, repr(value + b"x"))

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self._change(node, "return None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call | ast.Await):
            self._change(node, "pass")
        if not isinstance(node.value, ast.Constant):  # the docstring of an attribute
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._change(node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._change(node, "pass")  # not its parts: most are the message

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id == "cast":
            self.visit(node.args[1])  # the type is for mypy
            return
        for keyword in node.keywords:
            if keyword.arg is not None:
                rest = [each for each in node.keywords if each is not keyword]
                self._change(node, ast.unparse(ast.Call(node.func, node.args, rest)))
        self.generic_visit(node)
