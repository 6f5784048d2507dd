"""Ports for servers of tests that are started as processes."""

import secrets
import socket
from contextlib import suppress

BELOW_THE_SYSTEMS = range(20_000, 32_000)
"""Lower than the ports that Linux gives to whoever asks for any, and above those of Ray's workers."""


def free_port() -> int:
    """A free port of the loopback that nothing else is likely to get before a server binds it: two processes of tests
    draw the same one with a chance of 1 in 12,000.
    """
    while True:
        port = secrets.choice(BELOW_THE_SYSTEMS)
        with suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            return port
