"""Benchmarks of middle training: which systems are compared under which conditions, and what came of it.

A design says what is compared; its layout has every combination that makes sense, and why the others do not; presets
hold the demo and the papers' tables as benchmarks; results are what was measured, as values.
"""
