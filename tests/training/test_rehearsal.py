"""Rows at once that follow from a device's memory; whether they fit tests/system holds against real tensors."""

import pytest
import torch

from midmask.training.rehearsal import even_split, fit_micro_batch
from tests.support.training.runs import spec_of
from tests.support.training.worker import setup_of


def test_no_limit_on_a_cpu_and_what_is_set_stays(tokens, tmp_path):
    for micro_batch in (None, 3):
        setup = setup_of(spec_of(tokens, tmp_path, train={"micro_batch": micro_batch}))
        _, objective, words = setup.build()
        assert fit_micro_batch(objective, setup, words, torch.device("cpu")) == micro_batch


@pytest.mark.parametrize(("share", "fitting", "rows"), [(256, 100, 86), (256, 128, 128), (17, 16, 9), (5, 1, 1)])
def test_pieces_are_few_and_about_equal(share, fitting, rows):
    assert even_split(share, fitting) == rows
