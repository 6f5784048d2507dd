"""Benchmarks of middle training: which systems are compared under which conditions, and what came of it.

`design` is a benchmark as data, `presets` are those of the papers and the demo; `layout` has the cell of every
combination that makes sense, with its steps, and why the others have none. `job` is what a command line asks for, and
`run` computes it; `results` are what was measured, as values, which `records` reads from artifacts or from the small
files of a benchmark elsewhere; `report` writes the tables and, with `figures`, draws them.
"""
