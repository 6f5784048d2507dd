"""The home of Ray: joining a cluster, and what runs on it."""

import os

os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
"""Read by Ray when it is imported: a thread that outlives an interrupt would start another Ray by its next call."""
