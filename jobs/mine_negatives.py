#!/usr/bin/env python3
"""Mines hard negatives: ranks a corpus for the train queries with a pool of faiss actors, and draws from it."""

from _entry import run

if __name__ == "__main__":
    run("mine_negatives")
