#!/usr/bin/env python3
"""Sweeps DupMAE's vectors: width of the [CLS] part and number of words, for a measure and for bytes per passage.

Every width is fine-tuned once; the number of words is cut at search time from one encoding, so it costs no training.
The papers' four points are compared over seeds in the end. Interrupted, it goes on when submitted again.
"""

from _entry import run_space

if __name__ == "__main__":
    run_space("sparse_topn", __doc__)
