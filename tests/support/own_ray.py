"""A Ray for a benchmark."""

import os
import secrets

import ray


def start_ray(cpus: int, **options: object) -> None:
    """A local Ray without a dashboard. Its token is this process's own: left alone, Ray would leave one in the user's
    home, after which every `ray start` demands it.
    """
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    ray.init(address="local", num_cpus=cpus, include_dashboard=False, log_to_driver=False, **options)
