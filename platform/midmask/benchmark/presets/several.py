"""A preset on several collections: the same systems, with the measures that the preset has for each collection."""

from collections.abc import Sequence
from dataclasses import replace

from midmask.benchmark.design import Benchmark
from midmask.benchmark.presets import PRESETS, Given
from midmask.errors import UserError

OWN = {"corpus", "measures", "notes"}
"""Fields that may differ between the collections of one run."""


def on_several(name: str, given: Given, further: Sequence[str]) -> Benchmark:
    """The benchmark of a preset on the given corpus and on further ones.

    Raises:
        UserError: for a preset that compares something else on a further corpus, or a corpus that is given twice.
    """
    first, given_so_far, beside = PRESETS[name](given), [given.corpus], []
    for corpus in further:
        if corpus in given_so_far:
            raise UserError(f"--corpus {corpus} is given twice; give each collection once")
        given_so_far.append(corpus)
        there = PRESETS[name](replace(given, corpus=corpus))
        if first.model_dump(exclude=OWN) != there.model_dump(exclude=OWN):
            raise UserError(
                f"--corpus {corpus}: --preset {name} compares something else there than on {given.corpus}; give each "
                "of the two a command with one --corpus"
            )
        beside.append({"corpus": corpus, "measures": there.measures})
    return Benchmark.model_validate({**first.model_dump(), "further": beside})
