#!/usr/bin/env python3
"""Trains a model that writes queries for passages, on the train queries of a labelled collection."""

from _entry import run

if __name__ == "__main__":
    run("train_generator")
