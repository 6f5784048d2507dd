#!/usr/bin/env python3
"""Trains the teacher of a recipe's fine-tuning stage, and scores the stage's candidates with it."""

from _entry import run

if __name__ == "__main__":
    run("train_teacher")
