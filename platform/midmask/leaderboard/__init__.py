"""Tracked runs as what a leaderboard shows, as plain data. Pages, tables and tests share it; nothing is drawn.

rows           one row per evaluated run, corpus and split; what has not finished, apart
snapshot       the runs of a store as they were known at a time; a look asks only for what changed
snapshot_file  a snapshot as a Parquet file beside the store
watch          keeps a snapshot fresh in a thread, so that no page waits
surfaces       the finished trials of a sweep
"""
