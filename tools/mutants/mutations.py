"""Small wrong changes of a source file, each of which some test should notice."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

COMPARISONS = {  # as it is written, at its boundary, reversed
    ast.Lt: ("<", "<=", ">="),
    ast.LtE: ("<=", "<", ">"),
    ast.Gt: (">", ">=", "<="),
    ast.GtE: (">=", ">", "<"),
    ast.Eq: ("==", None, "!="),
    ast.NotEq: ("!=", None, "=="),
    ast.Is: ("is", None, "is not"),
    ast.IsNot: ("is not", None, "is"),
    ast.In: ("in", None, "not in"),
    ast.NotIn: ("not in", None, "in"),
}
OPERATORS = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.Pow: ("**", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
}
UNCONFUSED = {"isinstance", "jax.tree.map"}
UNSEEN_KEYWORDS = {"maxsize", "strict"}  # of caches and zips: right at any value


class Mutant(NamedTuple):
    path: str  # of the file, below the repository
    line: int
    function: tuple[int, int]  # first and last line of the function, class or file around it
    kind: str
    old: str
    new: str
    start: int  # in bytes of the file
    end: int

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line} {self.kind}: {_short(self.old)} -> {_short(self.new)} (byte {self.start})"

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


def of_file(path: str, source: bytes) -> list[Mutant]:
    """All mutants of one file, in the order of its text."""
    tree = ast.parse(source)
    finder = _Finder(path, source)
    finder.visit(tree)
    return sorted(finder.found, key=lambda mutant: (mutant.start, mutant.kind, mutant.new))


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source, self.found = path, source, []
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.function = (1, len(self.starts) - 1)

    # ---- where nothing is changed: annotations, docstrings, the words of errors, caches' sizes, and numbers that are
    # choices: a setting's default, a named constant of a module

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outside, self.function = self.function, (node.lineno, node.end_lineno)
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self.function = outside

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outside, self.function = self.function, (node.lineno, node.end_lineno)
        for statement in node.body:
            self.visit(statement)
        self.function = outside

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and not _is_choice(node.value):
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        is_named = isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper()
        if not (is_named and _is_choice(node.value)):
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self.add(node, "removed", "pass")

    def visit_Import(self, node: ast.Import) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    # ---- changes

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            old, boundary, opposite = COMPARISONS[type(node.ops[0])]
            for kind, new in (("boundary", boundary), ("comparison", opposite)):
                if new is not None:
                    self.replace_between(node.left, node.comparators[0], kind, old, new)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        is_text = any(isinstance(side, ast.JoinedStr) or _is_string(side) for side in (node.left, node.right))
        if type(node.op) in OPERATORS and not is_text:
            self.replace_between(node.left, node.right, "operator", *OPERATORS[type(node.op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        is_index = isinstance(node.operand, ast.Constant) and isinstance(node.operand.value, int)  # as an axis: -1
        if isinstance(node.op, ast.USub | ast.Not) and not is_index:
            start, sign = self.start(node), "-" if isinstance(node.op, ast.USub) else "not"
            self.add_at(start, start + len(sign), node.lineno, "negation", "")
        if not isinstance(node.operand, ast.Constant):
            self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        self.replace_between(*node.values[:2], "connective", old, new)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.add(node, "constant", str(not node.value))
        elif isinstance(node.value, int):
            self.add(node, "constant", str(node.value + 1))
        elif isinstance(node.value, float):
            self.add(node, "constant", repr(2 * node.value if node.value else 1.0))

    def visit_Call(self, node: ast.Call) -> None:
        if len(node.args) >= 2 and _may_be_confused(*node.args[:2]) and self.text(node.func) not in UNCONFUSED:
            first, second = node.args[:2]
            swapped = self.text(second) + self.between(first, second).decode() + self.text(first)
            self.add_at(self.start(first), self.end(second), first.lineno, "swapped", swapped)
        for keyword in node.keywords:
            if keyword.arg is not None and keyword.arg not in UNSEEN_KEYWORDS:
                end = self.end(keyword)
                end += len(self.source[end:]) - len(self.source[end:].lstrip(b", \n"))
                self.add_at(self.start(keyword), end, keyword.value.lineno, "left out", "")
        self.visit(node.func)
        for each in node.args:
            self.visit(each)
        for keyword in node.keywords:
            if keyword.arg not in UNSEEN_KEYWORDS:
                self.visit(keyword.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.add(node, "removed", "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.add(node, "removed", "pass")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        for constant in ("True", "False"):
            self.add(node.test, "branch", constant)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        for constant in ("True", "False"):
            self.add(node.test, "branch", constant)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self.add(node.iter, "no loop", "()")
        self.generic_visit(node)

    # ---- text

    def start(self, node: ast.AST) -> int:
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.AST) -> int:
        return self.starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.AST) -> str:
        return self.source[self.start(node) : self.end(node)].decode()

    def between(self, left: ast.AST, right: ast.AST) -> bytes:
        return self.source[self.end(left) : self.start(right)]

    def replace_between(self, left: ast.AST, right: ast.AST, kind: str, old: str, new: str) -> None:
        start = self.end(left) + self.between(left, right).index(old.encode())
        self.add_at(start, start + len(old), left.lineno, kind, new)

    def add(self, node: ast.AST, kind: str, new: str) -> None:
        self.add_at(self.start(node), self.end(node), node.lineno, kind, new)

    def add_at(self, start: int, end: int, line: int, kind: str, new: str) -> None:
        old = self.source[start:end].decode()
        mutant = Mutant(self.path, line, self.function, kind, old, new, start, end)
        if _parses(mutant.applied(self.source)):
            self.found.append(mutant)


def _parses(source: bytes) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _may_be_confused(first: ast.AST, second: ast.AST) -> bool:
    """Of one sort: to swap others, as a function and a number, would only raise."""
    is_plain = isinstance(first, ast.Name | ast.Attribute | ast.Subscript | ast.BinOp | ast.UnaryOp | ast.Constant)
    return is_plain and type(first) is type(second) and ast.dump(first) != ast.dump(second) and not _is_string(first)


def _is_choice(value: ast.AST) -> bool:
    """A number as it is chosen: another would be another choice, not a mistake."""
    return all(
        isinstance(node, ast.Constant | ast.UnaryOp | ast.BinOp | ast.operator | ast.unaryop | ast.Tuple | ast.Load)
        for node in ast.walk(value)
    )


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 60 else text[:57] + "...")


def all_below(folders: list[str], root) -> Iterator[Mutant]:
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            yield from of_file(path.relative_to(root).as_posix(), path.read_bytes())
