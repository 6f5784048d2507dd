"""Mutants of a module: every change that an operator of cosmic-ray makes, and a sample of them."""

import ast
import random
from collections import defaultdict
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from tests.support.project import ROOT

Position = tuple[int, int]
IDENTITIES = ("_Eq_Is", "_Eq_IsNot", "_NotEq_Is", "_NotEq_IsNot")


@dataclass(frozen=True)
class Mutant:
    """One change of one module. line: where it is, counted from 1. old, new: the line before and after."""

    file: str
    line: int
    old: str
    new: str
    source: str = field(repr=False)

    def apply(self, root: Path) -> None:
        (root / self.file).write_text(self.source, "utf-8")

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  {self.old}  =>  {self.new}"


def draw(file: str, count: int, seed: int, lines: Container[int] | None = None) -> list[Mutant]:
    """`count` mutants of a module, or of some of its lines, at most one for each place, in the order of the file."""
    text = (ROOT / file).read_text("utf-8")
    places = defaultdict(list)
    for operator, occurrence, place in changes(text):
        if lines is None or place[0][0] in lines:
            places[place].append((operator, occurrence))
    generator, found = random.Random(f"{seed}/{file}"), {}
    for place in generator.sample(sorted(places), len(places)):
        operator, occurrence = generator.choice(places[place])
        mutant = made(file, text, operator, occurrence)
        if mutant is not None:
            found[mutant.old, mutant.new] = mutant
        if len(found) == count:
            break
    return sorted(found.values(), key=lambda mutant: (mutant.line, mutant.new))


def changes(text: str) -> Iterator[tuple[str, int, tuple[Position, Position]]]:
    """(operator, number of its change, place) of all that can be changed. Left out: what mypy holds and nothing runs
    (annotations, `frozen` of dataclasses), and `is` for `==`, whose outcome is the interpreter's affair.
    """
    ignored = [*unrun(text)]
    for name in operator_names():
        operator = get_operator(name)
        if operator.arguments() or name.endswith(IDENTITIES):
            continue  # the former want names of variables
        positions = [at for node in ast_nodes(get_ast(text)) for at in operator().mutation_positions(node)]
        for occurrence, (start, stop) in enumerate(positions):
            if not any(first <= start and stop <= last for first, last in ignored):
                yield name, occurrence, (start, stop)


def unrun(text: str) -> Iterator[tuple[Position, Position]]:
    """Annotations, and options of dataclasses."""
    for node in ast.walk(ast.parse(text)):
        own = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        for decorator in getattr(node, "decorator_list", []):
            own += [decorator] * (isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "dataclass")
        for one in own:
            if isinstance(one, ast.expr):
                yield (one.lineno, one.col_offset), (one.end_lineno or one.lineno, one.end_col_offset or 0)


def made(file: str, text: str, operator: str, occurrence: int) -> Mutant | None:
    """The mutant; None if it is the same program, or none."""
    source = mutate_code(text, get_operator(operator)(), occurrence)
    try:
        if source is None or ast.dump(ast.parse(source)) == ast.dump(ast.parse(text)):
            return None
    except SyntaxError:
        return None
    before, after = text.splitlines(), source.splitlines()
    matched = SequenceMatcher(None, before, after, autojunk=False)
    first, last, begin, end = next(each[1:] for each in matched.get_opcodes() if each[0] != "equal")
    old, new = " ".join("\n".join(before[first:last]).split()), " ".join("\n".join(after[begin:end]).split())
    return Mutant(file, first + 1, old, new, source)
