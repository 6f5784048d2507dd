#!/usr/bin/env python3
"""The demo: a small sweep of RetroMAE's mask ratios from wiki-mini, held against no middle training, MLM and BM25."""

from _entry import run

if __name__ == "__main__":
    run("demo")
