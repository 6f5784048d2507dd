#!/usr/bin/env python3
"""Measures ranked lists of any tool, from TREC run files, and puts them onto the leaderboard."""

from _entry import run

if __name__ == "__main__":
    run("evaluate_run")
