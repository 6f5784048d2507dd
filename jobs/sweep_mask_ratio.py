#!/usr/bin/env python3
"""Sweeps RetroMAE's encoder and decoder mask ratios, and holds the winner against BM25, no middle training, and MLM.

Every trial is pre-trained, fine-tuned and evaluated under the same protocol; trials are chosen and pruned by retrieval
measures on dev. The winner alone is reported on test. Interrupted, it goes on when submitted again.
"""

from _entry import run_space

if __name__ == "__main__":
    run_space("mask_ratio", __doc__)
