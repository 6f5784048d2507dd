#!/usr/bin/env python3
"""Evaluates a retriever: searches the whole corpus for a split's queries and prints the measures, beside BM25's."""

from _entry import run

if __name__ == "__main__":
    run("evaluate_retriever")
