"""Results: narrowing, labels, and the file that carries them."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.artifact import Place
from midmask.benchmark.results import Result, Results, SystemKey, read_results
from midmask.evaluation.measures import SCHEMA, aggregate
from midmask.experiment.costs import Costs

COSTS = Costs(12.5, 0.25, 0.0, 3000, 400, 512.0, None)


def result(system: str, seed: int, values: list[float], representation: str = "dense", split: str = "test") -> Result:
    rows = [{"query_id": f"q{number}", "measure": "RR@10", "value": value} for number, value in enumerate(values)]
    per_query = pa.Table.from_pylist(rows, schema=SCHEMA)
    key = SystemKey(system, "corpus", representation, "in_batch")
    return Result(key, seed, "squad", split, aggregate(per_query), per_query, COSTS if seed else None)


GIVEN = Results(
    [
        result("retromae", 0, [0.5, 1.0, 0.25]),
        result("retromae", 1, [0.5, 0.5, 0.5]),
        result("mlm", 0, [0.0, 1.0, 0.2]),
        result("mlm", 0, [1.0, 1.0, 0.1], representation="splade"),
        result("mlm", 0, [0.3, 0.3, 0.3], split="dev"),
    ]
)


def test_two_systems_never_share_a_row():
    with pytest.raises(ValueError, match="splade"):
        GIVEN.per_query("squad", "test")
    both = GIVEN.per_query("squad", "test", by=lambda key: f"{key.system}, {key.representation}")
    assert [len(tables) for tables in both.values()] == [2, 1, 1]


@settings(max_examples=25)
@given(
    values=st.lists(st.floats(0, 1), min_size=1, max_size=5),
    names=st.lists(st.sampled_from(["none", "mlm", "rétro|mae"]), min_size=1, max_size=4, unique=True),
)
def test_a_file_of_results_holds_them_all(values, names, tmp_path_factory):
    place = Place(str(tmp_path_factory.mktemp("results") / "results.parquet"))
    given = Results(result(name, number, values) for number, name in enumerate(names))
    given.write(place, {"names": names})
    found, about = read_results(place)
    assert list(found) == list(given) and about == {"names": names}
    with pytest.raises(ValueError, match="no values"):
        Results([result("mlm", 0, [])]).write(place)
