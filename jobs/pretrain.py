#!/usr/bin/env python3
"""Middle training: trains an encoder on the passages of a corpus with one of the objectives."""

from _entry import run

if __name__ == "__main__":
    run("pretrain")
