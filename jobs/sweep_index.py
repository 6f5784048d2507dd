#!/usr/bin/env python3
"""Compares indexes of one encoder's dense vectors: what they find, how fast, in how many bytes."""

from _entry import run

if __name__ == "__main__":
    run("sweep_index")
