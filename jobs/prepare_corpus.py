#!/usr/bin/env python3
"""Reads a collection, checks and counts every row, and prints its statistics; on demand, also what some objectives read
besides passages: spans of documents, and pseudo-queries."""

from _entry import run

if __name__ == "__main__":
    run("prepare_corpus")
