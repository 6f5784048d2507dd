"""Run by test_pool_exact: searches with 1, 2 and 5 actors on a Ray of its own, since the shared one has two CPUs.

Arguments: a temporary folder for Ray, then folders that hold the artifacts passages, queries and tokens. Writes the
searches to the folders 1, 2 and 5 beside them.
"""

import os
import secrets
import sys

os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))

import ray

from midmask.artifact import Place, load
from midmask.backend import pool
from midmask.retrieve.search import SearchConfig

COUNTS = (1, 2, 5)


def main(session: str, folders: list[str]) -> None:
    ray.init(
        address="local",
        num_cpus=max(COUNTS),
        include_dashboard=False,
        object_store_memory=200 * 2**20,
        _temp_dir=session,
        log_to_driver=False,
    )
    for folder in folders:
        place = Place(folder)
        inputs = {name: load(place / name) for name in ("passages", "queries", "tokens")}
        for count in COUNTS:
            pool.search(SearchConfig(depth=25), inputs, place / str(count), actors=count)
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
