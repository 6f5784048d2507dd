"""A local Ray has the cores that its process may use."""

import os
import subprocess
import sys

LOCAL_RAY = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import ray
from midmask.backend.cluster import connect
connect()
print(ray.cluster_resources()["CPU"])
"""


def test_a_local_ray_has_the_cores_that_its_process_may_use() -> None:
    environment = {**os.environ, "RAY_ADDRESS": "local"}
    done = subprocess.run(
        [sys.executable, "-c", LOCAL_RAY], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) == 1
