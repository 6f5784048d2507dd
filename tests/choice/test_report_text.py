"""A verdict as Markdown: its numbers are the data's, its parts are all there, hostile texts stay texts."""

import re
from dataclasses import replace

from midmask.choice.report_text import GAINS, LONGEST_PASSAGE, code, verdict_markdown
from midmask.choice.verdict import Recommendation
from midmask.choice.wording import duration, signed, size
from tests.support.verdicts import HOSTILE, PUMP, systems, verdict

CELL = re.compile(r"(?<!\\)\|")


def tables(text: str) -> list[list[list[str]]]:
    """Rows of cells of each table, the head first, the rule left out."""
    found: list[list[list[str]]] = []
    for block in text.split("\n\n"):
        lines = block.splitlines()
        if len(lines) > 1 and all(line.startswith("|") for line in lines):
            found.append([[cell.strip() for cell in CELL.split(line)[1:-1]] for line in lines[:1] + lines[2:]])
    return found


def test_every_number_of_the_tables_is_the_datas() -> None:
    finalists, given_up, sources = tables(verdict_markdown(verdict()))
    assert finalists[0] == ["rank", "system", "representation", *GAINS, "computing", "per passage"] == given_up[0]
    assert (len(finalists), len(given_up)) == (7, 7)
    for row, one in zip([*finalists[1:], *given_up[1:]], systems(), strict=True):
        gains = (one.made_gain, one.made_low, one.made_high), (one.gain, one.gain_low, one.gain_high)
        told = [f"{signed(gain)} [{signed(low)}, {signed(high)}]" for gain, low, high in gains]
        shown = ["baseline"] * 2 if one.label == "none · dense" else told
        assert [row[0], *row[2:]] == [
            *(str(one.rank), one.representation, *shown, duration(one.seconds), size(one.bytes_per_passage))
        ]
    assert [row[1] for row in finalists[1:]] == ["**retromae**", "dupmae", "lexmae", "none", "mlm", "bm25"]
    assert [row[1] for row in sources[1:]] == [f"{count:,}" for count in verdict().queries.source.values()]


def test_hostile_texts_stay_texts() -> None:
    text = verdict_markdown(verdict())
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert "<" not in prose, "no HTML"
    assert not re.search(r"(?<!\\)\]\(", prose), "no link or image"
    assert "\\*\\*bold\\*\\*" in prose and "\n# No heading" not in prose and "\n| no |" not in prose
    assert text.count("```") == 8, "the passage's own fence opens nothing"
    text.encode("utf-8")
    assert len(PUMP) > LONGEST_PASSAGE and PUMP[:LONGEST_PASSAGE] + " …" in text and PUMP not in text
    odd = replace(systems()[1], system=f"a|b`c`\n{HOSTILE}")
    one = replace(verdict(), systems=(systems()[0], odd, *systems()[2:]))
    assert all(len(row) == 7 for row in tables(verdict_markdown(one))[0])


def test_a_fence_is_longer_than_what_is_in_it() -> None:
    assert code("a ````b", "sh") == "`````sh\na ````b\n`````"
    assert code("plain", "") == "```\nplain\n```"


def test_where_bm25_wins_the_model_is_the_best_encoders() -> None:
    one = replace(verdict(), recommendation=Recommendation("bm25", "bm25", True, ""))
    best = next(row for row in one.finalists if row.model)
    text = verdict_markdown(one)
    assert one.delivered == best and best.label in text and "SentenceTransformer(" in text
    assert "sentence_transformers" not in verdict_markdown(replace(one, model="")), "nothing was trained"
