#!/usr/bin/env python3
"""Runs a whole recipe: corpus, tokens, middle training, fine-tuning stages, evaluation on dev and test, beside BM25."""

from _entry import run

if __name__ == "__main__":
    run("run_recipe")
