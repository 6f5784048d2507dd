"""A function computed beside a job's own work, in another process of its cluster."""

from collections.abc import Callable
from typing import Any

import ray


def compute_aside(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's result, from a worker that holds no CPU of the cluster. Waits for it, so it is called from a
    thread. What torch has for a whole process, such as the state of its random numbers, stays as it is in this one.
    """
    return ray.get(ray.remote(num_cpus=0)(function).remote(*arguments))
