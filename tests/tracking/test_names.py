"""Names: measures to metric keys and back, what never shows, and which stores are refused."""

from pathlib import Path

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name, _validate_tag_name

from midmask.errors import UserError
from midmask.tracking.names import artifact_key, is_measure, measure_of, metric_key, resolve_tracking_uri, ui_address

PUBLISHED = ["nDCG@10", "R(rel=2)@100", "RR", "AP@1000", "nDCG(dcg='exp-log2')@10", "RBP(p=0.8,rel=1)@10", "SetP"]


def test_keys_of_the_contract() -> None:
    assert metric_key("pydocs", "dev", "nDCG@10") == "pydocs/dev/nDCG_at_10"
    assert metric_key("squad", "test", "R(rel=2)@100") == "squad/test/R_rel.2_at_100"
    for measure in map(ir_measures.parse_measure, PUBLISHED):
        assert ir_measures.parse_measure(measure_of(metric_key("pydocs", "dev", str(measure)))[2]) == measure
    assert metric_key("ms_marco.v2-passage", "dev-small", "RBP(p=0.8)") == "ms_marco.v2-passage/dev-small/RBP_p.0.8"


grammar = st.text("nDCGR@()=,._-:'/ at0189é", min_size=1, max_size=12)
names = st.one_of(grammar, st.text(min_size=1, max_size=6), st.sampled_from(PUBLISHED))
triples = st.tuples(names, names, names)


@given(triples, triples)
def test_any_name_comes_back_as_no_other_does_and_mlflow_takes_its_key(
    triple: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    key = metric_key(*triple)
    _validate_metric_name(key)
    _validate_tag_name(artifact_key(*triple[:2]))
    assert is_measure(key)
    assert measure_of(key) == triple and (key == metric_key(*other)) == (triple == other)


def test_flag_wins_over_environment_over_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert resolve_tracking_uri(None, tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert resolve_tracking_uri(None, tmp_path) == "http://127.0.0.1:5000"
    assert resolve_tracking_uri("sqlite:///runs/a.db", tmp_path) == f"sqlite:///{tmp_path}/runs/a.db"
    assert resolve_tracking_uri("sqlite:////abs/a.db", tmp_path) == "sqlite:////abs/a.db"
    assert resolve_tracking_uri("postgresql+psycopg2://u:p@h/d", tmp_path) == "postgresql+psycopg2://u:p@h/d"


@pytest.mark.parametrize(
    "uri", ["file:///x/mlruns", "mlruns", "/x/mlruns", "sqlite://", "sqlite:///:memory:", "ftp://h"]
)
def test_stores_that_keep_nothing_are_refused_with_advice(uri: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"sqlite:///mlflow\.db"):
        resolve_tracking_uri(uri, tmp_path)
    assert ui_address("https://me:pw@host:8000/mlflow/") == "https://host:8000/mlflow"
