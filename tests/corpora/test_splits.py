import pytest

from midmask.corpora.splits import OFFICIAL, Rule, assign_splits

QUERIES = [f"q{n}" for n in range(4000)]


def shares(official: list[str], names: set[str]) -> tuple[dict[str, float], Rule]:
    splits, rule = assign_splits(official, QUERIES, names, 0)
    return {split: round(splits.count(split) / len(splits), 2) for split in sorted(set(splits))}, rule


def test_official_splits_are_left_alone() -> None:
    official = ["train", "dev", "test", "extra"] * 1000
    assert assign_splits(official, QUERIES, set(official), 0) == (official, Rule(OFFICIAL))


@pytest.mark.parametrize("names", [{"test"}, {"train"}, {"dev", "test"}])
def test_without_train_or_with_train_only_all_are_divided(names: set[str]) -> None:
    found, rule = shares([sorted(names)[0]] * 4000, names)
    assert rule.words.startswith("60/20/20") and rule.made == ("dev", "test", "train")
    for split, share in {"train": 0.6, "dev": 0.2, "test": 0.2}.items():
        assert found[split] == pytest.approx(share, abs=0.03)


def test_a_missing_dev_is_drawn_from_train_and_test_stays() -> None:
    official = ["train", "test"] * 2000
    splits, rule = assign_splits(official, QUERIES, set(official), 0)
    assert "tenth of train" in rule.words and rule.made == ("dev", "train")
    assert [split for split, own in zip(splits, official, strict=True) if own == "test"] == ["test"] * 2000
    assert splits.count("dev") / 2000 == pytest.approx(0.1, abs=0.03)


def test_a_missing_test_is_half_of_dev_and_train_stays() -> None:
    official = ["train", "dev"] * 2000
    splits, rule = assign_splits(official, QUERIES, set(official), 0)
    assert rule.made == ("dev", "test")
    assert splits.count("train") == 2000 and splits.count("test") / 2000 == pytest.approx(0.5, abs=0.05)


def test_all_judgements_of_a_query_go_to_one_split_whatever_else_there_is() -> None:
    twice = QUERIES + QUERIES[::-1]
    splits, _ = assign_splits(["test"] * 8000, twice, {"test"}, 3)
    assert splits[:4000] == splits[:3999:-1]
    alone, _ = assign_splits(["test"], ["q7"], {"test"}, 3)
    assert alone == [splits[7]]


def test_slices_and_trecs_splits_stay_whatever_is_divided() -> None:
    official = ["test", "test.long", "dl19", "dl20"] * 1000
    splits, rule = assign_splits(official, QUERIES, set(official), 0)
    assert rule.words.startswith("60/20/20") and rule.made == ("dev", "test", "train")
    for split in ("test.long", "dl19", "dl20"):
        assert [found for found, own in zip(splits, official, strict=True) if own == split] == [split] * 1000
    assert {found for found, own in zip(splits, official, strict=True) if own == "test"} == {"train", "dev", "test"}
    alone = ["dl19", "test.long"] * 2000
    assert assign_splits(alone, QUERIES, set(alone), 0) == (alone, Rule(OFFICIAL))
