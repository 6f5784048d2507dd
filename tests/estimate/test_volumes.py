"""How much there is to read, by a look into the files, where nothing has been prepared."""

import random

import numpy as np
import pyarrow as pa
import pytest

from midmask.artifact import Place
from midmask.corpora import CorpusConfig
from midmask.estimate.volumes import Volumes
from midmask.experiment.step import Step
from tests.support.corpora.saved import save


@pytest.mark.parametrize("embedded", [False, True])
def test_saved_datasets_tell_their_passages_whatever_other_columns_there_are(tmp_path, embedded):
    count, draw = 12_000, random.Random(0)
    columns = {"text": pa.array(["word " * draw.randint(10, 80) for _ in range(count)])}
    if embedded:
        columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(count * 64, np.float32)), 64)
    save(tmp_path / "wiki", pa.table(columns), shards=2)
    config = CorpusConfig(name=f"hf:{tmp_path}/wiki")
    volume = Volumes(Place(str(tmp_path / "store"))).corpus(Step("prepare", config))
    assert volume.passages == pytest.approx(count, rel=0.15)
    assert volume.mean_characters == pytest.approx(5 * 45, rel=0.1)
