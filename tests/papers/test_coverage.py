"""Every printed number of a system that midmask implements has a cell; what has none is found and named."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from midmask.app.flags import add_zero_shot_flag, parse
from midmask.artifact import Place
from midmask.benchmark.presets import PRESETS
from midmask.benchmark.results import read_results
from midmask_papers.coverage import RUNS, Coverage, PresetRun, measure_coverage, report
from midmask_papers.published import PAPERS, Published, published

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "coverage.md"


def one(paper: str, table: str, label: str, measure: str) -> Published:
    return next(number for number in published(paper, table) if (number.label, number.measure) == (label, measure))


def is_covered(number: Published) -> bool:
    return any(run.covers(number) for run in RUNS[number.paper])


def test_every_number_of_an_implemented_system_has_a_cell():
    found = measure_coverage()
    assert {name: len(own) for name, own in found.items()} == {name: len(published(name)) for name in PAPERS}
    assert not [one.number for own in found.values() for one in own if one.implemented and not one.command]
    assert not [one.number for own in found.values() for one in own if not one.implemented and one.command]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("system", "bow"),
        ("system", "retromae[decoding=basic]"),
        ("collection", "books"),
        ("representation", "hybrid"),
        ("setting", "dpr"),
        ("corpus", "tripclick"),
        ("measure", "R@7"),
    ],
)
def test_a_number_under_conditions_that_no_preset_has_is_not_covered(field, value):
    number = one("dupmae", "1", "RetroMAE", "RR@10")
    assert is_covered(number) and not is_covered(replace(number, **{field: value}))


def test_a_divergence_is_covered_where_embeddings_are_mapped():
    number = one("cotmote", "1", "Siamese", "KL")
    assert is_covered(number) and not is_covered(replace(number, system="cotmote_switched"))


def test_what_a_paper_does_not_tell_may_be_anything():
    number = one("cotmote", "2", "SimLM", "RR@10")
    assert number.setting == "" and is_covered(number)


def test_table_7_reads_each_collection_under_its_name():
    """Middle training on MS MARCO, on Wikipedia, and on TripClick itself."""
    (run,) = (run for run in RUNS["sigir23"] if run.corpus.startswith("tripclick"))
    read = {(key.system, key.collection) for key in run.keys}
    assert ("retromae", "wiki") in read and ("lexmae", "msmarco") in read and ("mlm[fresh=true]", "corpus") in read
    assert ("mlm", "wiki") not in read and ("mlm", "corpus") not in read
    alone = {(key.system, key.collection) for key in PresetRun("sigir23", "tripclick:/data/tripclick", ()).keys}
    assert ("mlm", "corpus") in alone and not {name for _, name in alone} & {"msmarco", "wiki"}


@pytest.mark.parametrize("run", [run for runs in RUNS.values() for run in runs], ids=lambda run: run.corpus)
def test_a_command_says_what_the_run_is_made_of(run: PresetRun):
    _, job, *words = run.command.split()
    assert (PAGE.parents[2] / job).is_file()

    def add_flags(parser):
        parser.set_defaults(several_corpora=True)
        parser.add_argument("--preset")
        add_zero_shot_flag(parser)

    flags = parse(words, None, add_flags)
    assert (flags.preset, flags.corpus, flags.scale) == (run.preset, run.corpus, "published") and run.preset in set(
        PRESETS
    )
    assert flags.further_corpora == run.further
    assert (tuple(flags.pretrain_on), tuple(flags.zero_shot)) == (run.pretrain_on, run.zero_shot)


def test_what_lacks_a_cell_is_named():
    number = replace(one("dupmae", "1", "RetroMAE", "RR@10"), table="9")
    text = report({"dupmae": [Coverage(number, True, ""), Coverage(number, True, "a command")]})
    assert "\n\n1 of 2 printed numbers" in text and "50.0%" in text
    assert "## Without a command\n\n- dupmae, table 9: RetroMAE, RR@10 on msmarco" in text


def test_the_page_is_todays():
    """`make coverage` prints what stands there under the title."""
    title, text = PAGE.read_text("utf-8").split("\n\n", 1)
    assert title.startswith("# ") and text == report(measure_coverage()), "write `make coverage` into the page"


def test_the_page_says_first_that_nothing_of_it_was_run():
    """True as long as no record is of a paper's own collections, and none of a GPU."""
    assert re.match(r"[^.]*no cell .*published scale.*no[^.]*GPU", report(measure_coverage()), re.S)
    files = sorted((PAGE.parent / "records").glob("*/*.parquet"))
    found = [one for file in files for one in read_results(Place(str(file)))[0]]
    published_corpora = {number.corpus for name in PAPERS for number in published(name)} - {""}
    assert {one.corpus for one in found}.isdisjoint(published_corpora)
    assert sum(one.costs.gpu_hours for one in found) == 0


NAMES_TESTS = re.compile(r"-m tests\b|\btests/\w|\btests\.\w+\.")


def messages(file: Path) -> Iterator[str]:
    """The strings of a module but its docstrings; of another file, its text without comments."""
    if file.suffix != ".py":
        yield re.sub(r"^\s*#.*$", "", file.read_text("utf-8"), flags=re.M)
        return
    tree = ast.parse(file.read_text("utf-8"))
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    yield from (
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare
    )


def test_no_message_of_the_product_names_a_module_of_the_tests():
    """No wheel has them."""
    files = [
        path
        for folder in ("platform", "jobs", "dashboards")
        for path in (PAGE.parents[2] / folder).rglob("*")
        if path.suffix in {".py", ".yaml", ".toml", ".json", ".html", ".md"}
    ]
    assert len(files) > 300
    wrong = [(path.name, text) for path in files for text in messages(path) if NAMES_TESTS.search(text)]
    assert not wrong
    assert NAMES_TESTS.search("`python -m tests.speed.stop_word_share --corpus NAME` measures it")
