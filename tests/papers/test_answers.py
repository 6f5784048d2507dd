"""The page of answers: every claim of a paper once, under its outcome, with its figures."""

from pathlib import Path

import pytest

from midmask.benchmark.results import Results
from midmask.errors import UserError
from midmask_papers.answers import answers_in, page, read_answers
from midmask_papers.claims import CLAIMS, claims_csv, verdicts
from midmask_papers.published import PAPERS
from tests.support.benchmark.synthetic import dense, drawn, results


@pytest.fixture
def folder(tmp_path):
    """Claims as a report of a few systems has them: some hold, some do not, most are not measured."""
    found = results(drawn({dense("none"): 0.3, dense("mlm"): 0.4, dense("retromae"): 0.2}))
    for name in PAPERS:
        (tmp_path / f"{name}.csv").write_text(claims_csv(verdicts(found)), "utf-8")
    return tmp_path


def test_every_claim_stands_once_under_its_papers_heading_and_outcome(folder):
    found = answers_in(folder)
    assert sorted(answer.claim for own in found.values() for answer in own) == sorted(CLAIMS)
    assert all(CLAIMS[answer.claim].paper == name for name, own in found.items() for answer in own)
    text = page(found)
    assert all(text.count(f"({name})") == 1 for name in CLAIMS)
    assert text.index("**Held here**") < text.index("(sigir23.a_mlm)") < text.index("**Not measured**")


def test_figures_come_back_from_the_file_as_they_were(folder):
    (ruling,) = [ruling for claim, ruling in verdicts(_same()) if claim.name == "sigir23.a_mlm"]
    (answer,) = [one for one in read_answers(folder / "sigir23.csv", "sigir23") if one.claim == "sigir23.a_mlm"]
    assert answer.outcome == ruling.outcome == "holds"
    assert tuple(answer.figures.values()) == ruling.figures
    assert f"{100 * ruling.low:+.2f}" in answer.line() and "published +1.50" in answer.line()


def test_a_paper_whose_preset_was_not_run_is_said_with_its_command(folder):
    (folder / "rom.csv").unlink()
    found = answers_in(folder)
    assert set(found) == set(PAPERS) - {"rom"}
    assert "Not run yet: `jobs/benchmark_middle_training.py --preset rom`." in page(found)


def test_the_page_of_results_is_what_its_claims_give():
    results_pages = Path(__file__).resolve().parents[2] / "docs" / "results"
    assert (results_pages / "papers.md").read_text("utf-8") == page(answers_in(results_pages / "claims"))


def test_a_folder_without_claims_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"none of sigir23\.csv, .* is there; run a paper's preset"):
        answers_in(tmp_path)
    (tmp_path / "sigir23.csv").write_text("a,b\n1,2\n", "utf-8")
    with pytest.raises(UserError, match=r"sigir23\.csv: not the claims\.csv"):
        answers_in(tmp_path)


def _same() -> Results:
    return results(drawn({dense("none"): 0.3, dense("mlm"): 0.4, dense("retromae"): 0.2}))
