"""What the middle training reads, made on a real Ray, equals what one process makes."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.artifact import Place
from midmask.backend.makers import cluster_makers
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES
from tests.support.corpora.collections import contents, write_beir


def test_the_cluster_reads_what_one_process_reads(ray_local: None, tmp_path: Path) -> None:
    for name in ("here", "there", "more"):
        write_beir(tmp_path / name, passages=30 if name == "here" else 21)
    (tmp_path / "given").mkdir()
    pq.write_table(pa.table({"input_ids": [[7, 8], [], [9] * 90]}), tmp_path / "given/x.parquet")
    collections = [f"beir:{tmp_path}/there", f"beir:{tmp_path}/more"]
    changes = {"corpus.name": f"beir:{tmp_path}/here", "tokens.vocabulary_size": 300, "tokens.max_length": 24}
    for names in (collections, [f"tokens:{tmp_path}/given"]):
        step = plan(override(RECIPES["mlm"](), {**changes, "pretrain_on": names})).pretraining_tokens
        here = Runner(Place(str(tmp_path / "one")), LOCAL, Silent()).run(step)
        there = Runner(Place(str(tmp_path / "many")), cluster_makers(1), Silent()).run(step)
        results = [{**artifact.result, "seconds": None} for artifact in (here, there)]
        assert results[0] == results[1]
        found = [contents(artifact.place.local()) for artifact in (here, there)]
        for files in found:
            files.pop("record.json")  # names the folders of the inputs
        assert found[0] == found[1]
        if corpus := step.inputs.get("corpus"):
            joined = [
                contents(corpus.place(Place(str(tmp_path / store))).local() / "docs") for store in ("one", "many")
            ]
            assert joined[0] == joined[1]
