"""The stores of a cluster, on a machine of their own: an S3 emulation (moto), and MLflow's server over PostgreSQL.

python -m tests.system.cluster.services ADDRESS        run on that machine; answers each line of its input with one line

    stop tracking | database | storage       the server hears nothing more, and its connections stay open
    continue tracking | database | storage   it goes on
    kill tracking                            the server ends at once
    start tracking                           it is there again
"""

import os
import signal
import subprocess
import sys
import urllib.request
from functools import partial
from pathlib import Path

from tests.support.object_store import CREDENTIALS
from tests.support.tracking.server import POSTGRES_PASSWORD, postgres
from tests.support.waiting import answers, wait_until

STORAGE, TRACKING = 9000, 5000
BUCKET = "bucket"
SIGNALS = {"stop": signal.SIGSTOP, "continue": signal.SIGCONT, "kill": signal.SIGKILL}


def environment(address: str) -> dict[str, str]:
    """What a machine needs to reach the stores."""
    stores = {"AWS_ENDPOINT_URL": f"http://{address}:{STORAGE}", "AWS_REGION": "us-east-1", **CREDENTIALS}
    named = {"MIDMASK_STORAGE": f"s3://{BUCKET}/store", "MLFLOW_TRACKING_URI": f"http://{address}:{TRACKING}"}
    return {**stores, **named}


def main(address: str) -> None:
    running: dict[str, subprocess.Popen[bytes]] = {}
    at = {"storage": f"http://{address}:{STORAGE}", "tracking": f"http://{address}:{TRACKING}"}
    looked_at = {"storage": "moto-api/data.json", "tracking": "health"}

    def start(name: str) -> None:
        path, log = Path(sys.executable).with_name(commands[name][0]), Path(f"/tmp/{name}.log")
        with open(log, "ab") as stream:
            command = [path, *commands[name][1:]]
            running[name] = subprocess.Popen(command, stdout=stream, stderr=stream, start_new_session=True)
        wait_until(partial(answers, f"{at[name]}/{looked_at[name]}"), running[name], log)

    with postgres() as database:
        flags = ("--workers", "1", "--allowed-hosts", f"{address}:{TRACKING}", "--artifacts-destination", "/tmp/mlflow")
        runs = ("--backend-store-uri", database.replace("postgres@", f"postgres:{POSTGRES_PASSWORD}@"))
        commands = {
            "storage": ("moto_server", "--host", address, "--port", str(STORAGE)),
            "tracking": ("mlflow", "server", "--host", address, "--port", str(TRACKING), *flags, *runs),
        }
        for name in commands:
            start(name)
        urllib.request.urlopen(urllib.request.Request(f"{at['storage']}/{BUCKET}", method="PUT"), timeout=10).close()
        print("ready", flush=True)
        for line in sys.stdin:
            verb, name = line.split()
            if verb == "start":
                start(name)
            elif name == "database":
                subprocess.run(["pkill", f"-{SIGNALS[verb].name.removeprefix('SIG')}", "-x", "postgres"], check=True)
            else:
                os.killpg(running[name].pid, SIGNALS[verb])
            if verb == "kill":
                running[name].wait()
            print("done", flush=True)
        for one in running.values():
            os.killpg(one.pid, signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
