"""Benchmarks of middle training: which systems are compared under which conditions, and what came of it."""
