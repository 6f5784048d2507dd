"""An S3 of this process's own on a loopback port: moto's server, reached through pyarrow like any other."""

import contextlib
import logging
import os
import urllib.request
from collections.abc import Iterator
from unittest import mock

from moto.server import ThreadedMotoServer

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


@contextlib.contextmanager
def object_store(bucket: str = "bucket") -> Iterator[str]:
    """The options of a URI that reach the server: `s3://BUCKET/ANY/KEY?OPTIONS`. Child processes reach it too, with the
    environment that holds as long as the block.
    """
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else it writes a line for every request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/{bucket}", method="PUT")).close()
    try:
        with mock.patch.dict(os.environ, CREDENTIALS):
            yield f"scheme=http&endpoint_override={host}:{port}&region=us-east-1"
    finally:
        server.stop()
