#!/usr/bin/env python3
"""From documents without labelled queries to a verdict and a model: which middle training, and what it gains."""

from _entry import run

if __name__ == "__main__":
    run("choose_middle_training")
