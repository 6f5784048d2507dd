"""midmask: middle training of encoders for retrieval, every method under one protocol.

Importing this package costs nothing and reaches no network. It only sets the switches that keep the libraries below it
quiet; a value that the user has set already is left as it is.
"""

import os

__version__ = "0.1.0"

QUIET = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "DO_NOT_TRACK": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_V2_ENABLED": "1",
    "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "false",
}

for _name, _value in QUIET.items():
    os.environ.setdefault(_name, _value)
