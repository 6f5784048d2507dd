#!/usr/bin/env python3
"""Compares indexes of one encoding, of dense vectors or of words: what they find, how fast, in how many bytes."""

from _entry import run

if __name__ == "__main__":
    run("sweep_index")
