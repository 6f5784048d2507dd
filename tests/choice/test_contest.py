"""A contest: who takes part, rounds, samples for tests, decisions that survive a kill; and a whole choice."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

import midmask
from midmask import Corpus, UserError, Verdict
from midmask.app.flags import parse
from midmask.app.job import resolve
from midmask.benchmark.layout import recipe_of
from midmask.choice.contenders import (
    AS_IS,
    LEXICAL,
    MINED,
    SCORED,
    SYSTEMS,
    TUNED,
    Size,
    System,
    contest,
    first_contenders,
    relatives,
)
from midmask.choice.contest import Contest
from midmask.choice.contest_terms import FILE, SHORTEST, Clock, Conditions, ContestJournal, Round
from midmask.choice.job import request_for
from midmask.choice.reveal import judged_split
from midmask.choice.traces import OTHERS, Made, passages_in, queries_of, relevant_of, sample_of
from midmask.commands import JOBS
from midmask.corpora.writer import write_beir
from midmask.queries.collection import Passage, query_row
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from tests.support.choice.documents import COUNT, ask, conditions_in, documents, workshop


@pytest.fixture
def conditions(tmp_path: Path) -> Conditions:
    return conditions_in(tmp_path)


def held(conditions: Conditions, folder, budget: float):
    running = Contest(conditions, workshop(folder), Clock(budget), ContestJournal(folder / "verdict", "one"))
    running.hold([LEXICAL])
    return running


def searched(running: Contest, split: str) -> set[str]:
    steps = [step for cell in running.cells(LEXICAL, SHORTEST, split) for step in cell.evaluations.values()]
    made = [one for step in steps for one in step.upstream() if one.name == "prepare"]
    return {one.config.name.rpartition("/")[2] for one in made}


@pytest.mark.parametrize("budget, where", [(1e6, "whole"), (1e-3, "part")])
def test_test_queries_are_searched_in_a_sample_where_the_whole_is_too_dear(conditions, tmp_path, budget, where) -> None:
    running = held(conditions, tmp_path, budget)
    assert searched(running, "dev") == {"part"}, "rounds search the sample in any case"
    assert searched(running, "test") == {where}
    assert (running.sample("test") is None) == (where == "whole")
    assert running.measured == (LEXICAL,), "what needs no training is measured, also where the budget is spent"
    again = held(conditions, tmp_path, 1e6)
    assert searched(again, "test") == {where}, "decided once, whatever time is left"


def test_nothing_is_trained_again_as_long_as_before(conditions, tmp_path) -> None:
    """The collection bounds trainings to 20 steps: a second round can only try what is new, a third one nothing."""
    journal = ContestJournal(tmp_path / "verdict", "one")
    running = Contest(conditions, workshop(tmp_path), Clock(1e6), journal)
    running.hold(first_contenders(["none"], "tiny"))
    first, second = journal.rounds
    assert first.size == second.size
    tuned, mined = (System("none", "dense", setting) for setting in (TUNED, MINED))
    assert set(first.contenders) == {LEXICAL, tuned} and set(second.contenders) == {LEXICAL, tuned, mined}
    assert set(running.finalists) == {LEXICAL, tuned, mined}
    # 20 steps to learn the machine's pace; then one stage, and two where negatives are mined by the first one's encoder
    assert len(list((tmp_path / "store" / "finetune").iterdir())) == 3


MLM = System("mlm", "dense", TUNED)


def test_what_was_decided_is_read_again(tmp_path):
    first = ContestJournal(tmp_path / "new", "one")
    first.rounds.append(Round(Size(30, 20), (LEXICAL, MLM), until=12.0))
    first.give_up([MLM], "behind")
    assert first.finalists is None
    first.finalists, first.pace, first.sampled = (MLM,), 0.25, True
    first.write(spent=12.5)
    again = ContestJournal(tmp_path / "new", "one")
    assert again.rounds == first.rounds
    assert (again.spent, again.pace, again.sampled, again.finalists) == (12.5, 0.25, True, (MLM,))
    assert again.given_up == {"mlm · dense": "behind"}


def test_another_contest_begins_afresh(tmp_path):
    ContestJournal(tmp_path, "one").write(spent=99)
    assert ContestJournal(tmp_path, "two").spent == 0
    (tmp_path / FILE).write_text('{"identity": "one", "spent": 9')
    assert ContestJournal(tmp_path, "one").spent == 0, "a torn file is no decision"


def test_a_kill_hides_no_more_time_than_a_tick(tmp_path):
    journal, spent = ContestJournal(tmp_path, "one"), set()
    with journal.keep_time(Clock(1e6, spent=50.0), period=0.01):
        while len(spent) < 5:
            spent.add(ContestJournal(tmp_path, "one").spent)
    assert {value for value in spent if value} and all(value >= 50.0 for value in spent if value)
    after = (tmp_path / FILE).read_bytes()
    assert not [thread for thread in threading.enumerate() if thread.name == "contest-clock"]
    assert (tmp_path / FILE).read_bytes() == after


BENCHMARK = contest("pydocs", SYSTEMS, Size(30, 20), ("dev",), {"backbone.name": "tiny"}, seed=4)


def every_contender() -> list[System]:
    first = first_contenders(SYSTEMS, "minilm")
    return [*first, *(one for contender in first for one in relatives(contender, tuple(SCORED)))]


def test_all_kinds_take_part_each_with_the_rounds_sizes():
    found = every_contender()
    plain = (LEXICAL, System("none", "dense", AS_IS))
    one_of_each = (("retromae", "splade", TUNED), ("mlm", "dense", MINED))
    assert {*plain, *(System(*one) for one in one_of_each)} < set(found)
    assert all(one.tuning != AS_IS for one in first_contenders(SYSTEMS, "tiny")), "its weights are random"
    for contender in found:
        for key in (each.key for each in contender.searched):
            recipe = recipe_of(BENCHMARK, key)
            recipe.check()
            if contender not in plain:
                assert {stage.train.steps for stage in recipe.stages} == {20}, str(contender)
                assert recipe.objective is None or recipe.pretrain.steps == 30
            joined = (recipe.evaluation.bm25_share, recipe.evaluation.fusion)
            assert joined == ((0.5, "convex") if "BM25" in key.setting else (0.0, "rrf")), str(contender)


def test_no_two_contenders_have_one_name():
    names = [system.name for contender in every_contender() for system in contender.searched]
    assert len(set(names)) == len(names)
    assert System("none", "dense", AS_IS).name == ("as it is", "dense")
    assert System("none", "dense", TUNED).name == ("fine-tuned only", "dense")
    assert System("mlm", "dense", TUNED, joined=True).name == ("mlm", "dense with BM25")


def test_only_trained_dense_systems_have_relatives_and_simcse_has_no_words():
    def kinds(contender: System, *representations: str) -> list[tuple[str, str]]:
        return [(one.representation, one.tuning) for one in relatives(contender, representations)]

    assert kinds(LEXICAL, *SCORED) == kinds(System("mlm", "splade", TUNED), *SCORED) == []
    assert kinds(System("simcse", "dense", TUNED), *SCORED) == [("dense", MINED)]
    assert kinds(System("mlm", "dense", TUNED), "dense") == [("dense", MINED)]


PASSAGES = 2 * OTHERS + 1
QRELS = {
    split: [(f"{split}-{number}", f"p{row}") for number, row in enumerate(range(first, PASSAGES, 100))]
    for first, split in enumerate(("dev", "test"))
}


@pytest.fixture
def made(tmp_path) -> Made:
    place = Place(str(tmp_path))
    made = Made(Artifact(place, {"result": {"passages": PASSAGES}}), Artifact(place, {"fingerprint": "one"}), "whole")
    passages = (Passage(f"p{row}", f"title {row}", f"text {row}") for row in range(PASSAGES))
    queries = [query_row(query, f"text of {query}", "titles", "d") for pairs in QRELS.values() for query, _ in pairs]
    judged = {split: [(*pair, 1) for pair in pairs] for split, pairs in QRELS.items()}
    write_beir(made.collection, passages, queries, judged)
    return made


@pytest.mark.parametrize("split", list(QRELS))
def test_all_that_the_queries_of_a_split_are_about_and_as_many_others(made, split, tmp_path) -> None:
    sample = sample_of(made, split, Place(str(tmp_path / "store")))
    folder = Place(sample.corpus.name.removeprefix("beir:"))
    kept = [one.doc_id for one in passages_in(folder)]
    wanted = {doc_id for _, doc_id in QRELS[split]}
    assert wanted < set(kept) and len(kept) == sample.passages == len(wanted) + OTHERS
    assert relevant_of(folder, split) == {query: [doc_id] for query, doc_id in QRELS[split]}
    assert set(queries_of(folder)) == {query for query, _ in QRELS[split]}, "no query of another split"
    assert kept == sorted(kept, key=lambda name: int(name[1:])), "in the order of the whole"
    rows = {int(doc_id[1:]) for doc_id in set(kept) - wanted}
    assert 0.45 < sum(row < PASSAGES / 2 for row in rows) / OTHERS < 0.55, "from all over the collection"


def test_a_collection_that_is_hardly_larger_is_searched_whole(made, tmp_path) -> None:
    small = replace(made, prepared=Artifact(made.prepared.place, {"result": {"passages": 2 * OTHERS}}))
    assert sample_of(small, "test", Place(str(tmp_path / "store"))) is None


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("choose")


@pytest.fixture(scope="module")
def verdict(home) -> Verdict:
    return ask(home)


def test_the_folder_has_what_others_rely_on(home, verdict):
    text = (home / "verdict" / "verdict.json").read_text()
    found = json.loads(text)
    read = type(verdict).from_json(text)
    assert replace(read, spent_seconds=verdict.spent_seconds) == verdict, "who asks again adds to the seconds"
    assert (found["corpus"], found["passages"]) == ("papers", COUNT)
    assert sum(found["queries"][split] for split in ("train", "dev", "test")) == found["queries"]["kept"]
    for name in ("verdict.md", "verdict.html", "queries.html"):
        assert (home / "verdict" / name).stat().st_size > 500
    model = SentenceTransformer(str(home / "verdict" / "model"), local_files_only=True, device="cpu")
    assert model.encode(["a query"]).shape[0] == 1
    assert verdict.corpus in (home / "verdict" / "model" / "README.md").read_text()


def test_every_system_has_a_rank_and_the_recommended_one_is_among_them(verdict):
    assert [one.rank for one in verdict.systems] == list(range(1, len(verdict.systems) + 1))
    trained = {one.name: one.training for one in verdict.systems}
    assert trained["bm25", "bm25"] == "none" and trained["fine-tuned only", "dense"] == "fine-tuning"
    assert trained["mlm", "dense"] == trained["mlm", "dense with BM25"] == "middle training"
    assert (verdict.recommendation.system, verdict.recommendation.representation) in trained
    assert not set(verdict.not_tried) & {one.label for one in verdict.systems}
    for one in verdict.systems:
        assert one.low <= one.estimate <= one.high and one.gain_low <= one.gain <= one.gain_high


def test_asked_again_nothing_is_computed(home, verdict):
    before = sorted(path for path in (home / "store").glob("*/*"))
    again = ask(home)
    assert sorted(path for path in (home / "store").glob("*/*")) == before
    assert again.systems == verdict.systems
    assert again.spent_seconds >= verdict.spent_seconds, "what was spent before counts"
    records = [json.loads(path.read_text()) for path in (home / "store" / "evaluate").glob("*/record.json")]
    on_test = [record for record in records if record["config"]["split"] == "test"]
    assert len(on_test) == len(verdict.finalists), "test queries are searched for finalists alone"


def test_mistakes_are_refused(home):
    with pytest.raises(UserError, match="30m, 8h"):
        midmask.choose(Corpus.from_texts(["a"]), budget="soon", storage=home / "store", progress=False)
    with pytest.raises(UserError, match="splade"):
        ask(home, representations=("sparse",))
    with pytest.raises(UserError, match="retromae"):
        ask(home, systems=("retromea",))
    with pytest.raises(UserError, match="queries"):
        midmask.choose(Corpus.from_texts(["one text", "another"]), storage=home / "few", out=home / "few-verdict")
    with pytest.raises(UserError, match="no judgements"):
        judged_split(Corpus.from_texts(documents()[1], name="papers").in_store(Place(str(home / "store"))))


@pytest.mark.parametrize(
    ("changes", "sources"),
    [
        ((), {"titles": 1.0, "sentences": 1.0, "keyphrases": 1.0, "file:/made.jsonl": 1.0}),
        (('queries.judged_by=["file:/made.jsonl"]', "queries.seed=4"), ("file:/made.jsonl",)),
        (('queries.sources={"titles": 2}',), None),
    ],
)
def test_a_file_of_queries_stands_beside_the_usual_sources_or_is_named_among_others(tmp_path, changes, sources) -> None:
    given = ["--storage", str(tmp_path / "store"), "--tracking-uri", f"sqlite:///{tmp_path}/m.db", "--queries"]
    sets = [f"--set={change}" for change in changes]
    flags = parse([*given, "/made.jsonl", *sets], None, JOBS["choose"].load().add_flags)
    if sources is None:
        with pytest.raises(UserError, match=r"^--queries /made.jsonl: queries.sources is set; name the file there"):
            request_for(resolve(flags), flags)
        return
    made = request_for(resolve(flags), flags).queries
    assert (made.judged_by or made.sources) == sources and made.sources["file:/made.jsonl"] == 1.0
