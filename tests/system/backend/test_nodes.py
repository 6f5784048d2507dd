"""What a node of a real Ray says of itself."""

import socket
from pathlib import Path

from midmask.app.checkup import faults
from midmask.artifact import Place
from midmask.backend.nodes import report_on_nodes
from midmask.checks import own_versions, why_not_writable


def test_a_sound_node_has_no_faults_and_leaves_nothing_in_the_store(ray_local: None, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (report,) = report_on_nodes(Place(str(tmp_path / "store")), f"sqlite:///{tmp_path}/mlflow.db")
    assert faults([report], own_versions()) == [[]]
    assert report.name == socket.gethostname() and report.versions == own_versions() and abs(report.clock) < 1
    assert list((tmp_path / "store").iterdir()) == [] and not (tmp_path / "mlflow.db").exists()


def test_stores_that_it_cannot_use_are_told_with_the_reason(ray_local: None, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    (tmp_path / "file").write_text("no folder")
    (report,) = report_on_nodes(Place(str(tmp_path / "file")), f"http://127.0.0.1:{port}")
    (of_store, of_tracking) = faults([report], own_versions())[0]
    assert of_store.startswith("cannot use the store: ") and str(tmp_path / "file") in of_store
    assert of_tracking.startswith("cannot use the tracking server: ") and f"127.0.0.1:{port}" in of_tracking


def test_a_store_without_a_server_is_told_as_such() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    place = Place(f"s3://somebody:secret@bucket/store?endpoint_override=127.0.0.1:{port}&scheme=http")
    said = why_not_writable(place)
    assert "connect" in said.lower() and "secret" not in said
