#!/usr/bin/env python3
"""Compares middle trainings under the same conditions: systems × collections × representations × settings × seeds."""

from _entry import run

if __name__ == "__main__":
    run("benchmark_middle_training")
