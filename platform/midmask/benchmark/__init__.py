"""Benchmarks of middle training: which systems are compared under which conditions, and what came of it.

design gives every combination that makes sense, and why the others do not; presets hold the demo and the papers' tables
as benchmarks; results are what was measured, as values; report makes tables and files of them.
"""
