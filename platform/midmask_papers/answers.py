"""What held, what did not, and what cannot be told, paper by paper, from the claims that runs of the presets wrote:

    python -m midmask_papers.answers docs/results/claims

prints Markdown. The folder has a `PRESET.csv` for each paper whose preset was run, the `claims.csv` of the run's
report, and beside it `PRESET.md`, its `claims.md`.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from midmask.errors import UserError
from midmask_papers.claims import CLAIMS, FIGURES
from midmask_papers.published import PAPERS, paper
from midmask_papers.verdict import ClaimOutcome, points

SAID: tuple[tuple[ClaimOutcome, str], ...] = (
    ("holds", "Held here"),
    ("does not hold", "Did not hold here"),
    ("not decidable", "Cannot be told at this size"),
    ("not measured", "Not measured"),
)

BEGINNING = """# What held of the papers

Each paper's claims, checked by a run of its preset at the small scale of its page under
[Reproduce](../reproduce/sigir23.md): an encoder of two layers that starts from random weights. So a claim that holds
here holds for what little such an encoder learns, and one that does not may hold for BERT. Teachers are as small and
trained as briefly, so claims on distillation say little. Where none of the systems that a claim compares reaches a
tenth of BM25's measure, it cannot be told, however clear their difference is. Differences are in hundredths of the
claim's measure, with their 95% interval over queries and seeds; how a claim is decided is said on each page of claims.
"""


@dataclass(frozen=True)
class ClaimAnswer:
    """A claim's outcome in the run of its paper's preset. figures: of FIGURES, as fractions; absent ones are not in
    it.
    """

    claim: str
    outcome: str
    figures: dict[str, float]

    def line(self) -> str:
        """The claim with its figures in hundredths."""
        told = {name: points(value) for name, value in self.figures.items()}
        ours = f"{told['ours']} [{told['low']}, {told['high']}]" if {"ours", "low", "high"} <= told.keys() else ""
        theirs = f"published {told['published']}" if "published" in told else ""
        measured = ", ".join(part for part in (ours, theirs) if part)
        text = CLAIMS[self.claim].text
        return f"- {text.removesuffix('.')}: {measured} ({self.claim})" if measured else f"- {text} ({self.claim})"


def read_answers(path: Path, name: str) -> list[ClaimAnswer]:
    """A paper's own claims in a `claims.csv`, in its order.

    Raises:
        UserError: if the file has another form.
    """
    with path.open(encoding="utf-8", newline="") as stream:
        try:
            return [_answer(row) for row in csv.DictReader(stream) if row["paper"] == name]
        except (KeyError, ValueError) as error:
            raise UserError(f"{path}: not the claims.csv of a report ({error!r})") from None


def _answer(row: dict[str, str]) -> ClaimAnswer:
    return ClaimAnswer(row["claim"], row["verdict"], {name: float(row[name]) for name in FIGURES if row[name]})


def page(found: dict[str, list[ClaimAnswer]]) -> str:
    """Markdown: a section for each paper, with the claims of each outcome."""
    parts = [BEGINNING.strip()]
    for name in PAPERS:
        parts.append(f"## {paper(name).citation}")
        if name in found:
            parts += [f"With their figures: [claims](claims/{name}.md).", *_outcomes(found[name])]
        else:
            parts.append(f"Not run yet: `jobs/benchmark_middle_training.py --preset {name}`.")
    return "\n\n".join(parts) + "\n"


def _outcomes(answers: Sequence[ClaimAnswer]) -> Iterator[str]:
    for outcome, said in SAID:
        own = [answer.line() for answer in answers if answer.outcome == outcome]
        if own:
            yield "\n".join([f"**{said}**", "", *own])


def answers_in(folder: Path) -> dict[str, list[ClaimAnswer]]:
    """Paper -> its answers, for those whose preset was run.

    Raises:
        UserError: if there is none, or as `read_answers`.
    """
    files = {name: folder / f"{name}.csv" for name in PAPERS}
    found = {name: read_answers(file, name) for name, file in files.items() if file.is_file()}
    if not found:
        raise UserError(
            f"{folder}: none of {', '.join(file.name for file in files.values())} is there; run a paper's preset, and "
            "copy claims.csv of its report to it"
        )
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    try:
        print(page(answers_in(parser.parse_args().folder)), end="")
    except UserError as error:
        sys.exit(f"answers: {error}")
