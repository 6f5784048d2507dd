#!/usr/bin/env python3
"""Runs the sweep of a search space: `--space search_spaces/mask_ratio.yaml`, or a file of your own."""

from _entry import run

if __name__ == "__main__":
    run("sweep")
