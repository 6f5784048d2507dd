"""The home of Ray: joining a cluster, and what runs on it."""

import os

os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
"""Read by Ray when it is imported. Else any call of Ray where none is joined, as after a job, would start another."""
