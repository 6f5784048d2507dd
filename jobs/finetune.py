#!/usr/bin/env python3
"""Fine-tunes a bi-encoder on the train queries of a corpus, in the stages of a recipe or of --protocol."""

from _entry import run

if __name__ == "__main__":
    run("finetune")
