"""Tracked runs as what a leaderboard shows, as plain data. Pages, tables and tests share it; nothing is drawn.

rows      one row per evaluated run, corpus and split; what has not finished, apart
surfaces  the finished trials of a sweep
"""
