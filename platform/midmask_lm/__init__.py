"""Models that midmask ships, read as files: `wiki-mini/`, a general language model, whose README.md is its card."""
