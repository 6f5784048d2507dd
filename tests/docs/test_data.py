"""The scripts of docs/data/ turn files in their source's form into collections that midmask reads."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.corpora.collections import rows, write
from tests.support.corpora.layouts import read
from tests.support.tracked import DOCS


def build(folder: Path, script: str, *arguments: str) -> list[list[tuple[object, ...]]]:
    """Passages and judgements of the collection `made` that the script writes in the folder."""
    command = ["env", f"IR_DATASETS_HOME={folder}", sys.executable, DOCS / "data" / script, *arguments]
    subprocess.run(command, cwd=folder, check=True)
    read(f"beir:{folder}/made", folder / "out")
    return [[tuple(row.values()) for row in rows(folder / "out" / part)] for part in ("docs", "qrels.parquet")]


def squad(*texts: tuple[str, str, str]) -> bytes:
    pages = [(title, {"context": text, "qas": [{"question": question}]}) for title, text, question in texts]
    return json.dumps({"data": [{"title": title, "paragraphs": [page]} for title, page in pages]}).encode()


def test_squad_has_its_distinct_paragraphs_and_the_distinct_questions_of_each_split(tmp_path: Path) -> None:
    write(tmp_path / "train", squad(("Zoo", "Zoo ", "What?"), ("The_Rus%27", "Rus", " What?"), ("Zulu", "Rus", "Why?")))
    write(tmp_path / "dev", squad(("Warsaw", "A city.", "What?"), ("Rhine", "A river.", "Where?")))
    passages, judgements = build(tmp_path, "squad.py", "train", "dev", "made")
    assert [row[1:] for row in passages[:2]] == [("The Rus'", "Rus"), ("Zoo", "Zoo")]
    of_train = [("train-00001", "p00001"), ("train-00001", "p00002"), ("train-00002", "p00001")]
    assert sorted(row[1:3] for row in judgements if row[0] == "train") == of_train


def test_cranfields_best_code_is_the_highest_grade_and_what_is_empty_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "cranfield/docs.txt", b".I 1\n.T\na\nwing .\n.A\n.B\n.W\na\nwing .  flat\n.I 2\n.T\n.A\n.B\n.W\n")
    write(tmp_path / "cranfield/queries.txt", b".I 001\n.W\nwhat\nflies .\n.I 004\n.W\nwhy .\n")
    write(tmp_path / "cranfield/qrels.txt", b"1 1 1\n1 2 3\n2 1 -1\n")
    passages = [("1", "a wing .", "a wing . flat")]
    assert build(tmp_path, "cranfield.py", "made") == [passages, [("test", "1", "1", 4), ("test", "2", "1", 0)]]


def test_wikis_passages_are_whole_sentences_and_end_at_a_heading(tmp_path: Path) -> None:
    end = " ".join(["Word", *["word"] * 38, "end."])  # 40 words
    body = f"Wood\n\n{end} {end} {end} {end}\n{end}\nUses.\n{end} {end}\nFire.\n{end} {end}\n"
    write(tmp_path / "doc", f'<doc id="7" url="u" title="Wood">\n{body}\n</doc>\n'.encode())
    write(tmp_path / "json", json.dumps({"id": "8", "title": "Steel", "text": body}).encode())
    passages, _ = build(tmp_path, "wiki.py", "doc", "json", "--out", "made")
    lengths = sorted((row[0], len(str(row[2]).split())) for row in passages)
    assert lengths[:3] == [("w7-0", 120), ("w7-1", 80), ("w7-2", 80)] and len(lengths) == 8
