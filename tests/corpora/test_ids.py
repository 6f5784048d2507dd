from hypothesis import given
from hypothesis import strategies as st

from midmask.corpora.ids import IdTable
from midmask.randomness.texts import uniform

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), max_size=30)


@given(st.lists(texts, max_size=8), texts, st.sampled_from([1, 4, 64]))
def test_the_table_equals_a_dictionary_even_when_hashes_collide(
    batches: list[list[str]], asked: list[str], hash_bits: int
) -> None:
    table = IdTable(hash_bits)
    oracle: dict[str, int] = {}
    for batch in batches:
        wanted = []
        for text in batch:
            wanted.append(text not in oracle)
            oracle.setdefault(text, len(oracle))
        assert table.add(batch).tolist() == wanted
    assert len(table) == len(oracle)
    assert [table[row] for row in range(len(table))] == list(oracle)
    assert table.rows(asked).tolist() == [oracle.get(text, -1) for text in asked]


def test_draws_are_uniform_and_depend_on_the_salt() -> None:
    names = [str(n) for n in range(20_000)]
    draw = uniform(names, "a")
    assert 0 <= draw.min() and draw.max() < 1
    for bound in (0.1, 0.5, 0.8):
        assert abs((draw < bound).mean() - bound) < 0.015
    assert abs(((draw < 0.5) & (uniform(names, "b") < 0.5)).mean() - 0.25) < 0.015
