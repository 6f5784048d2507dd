"""Documents of several kinds, one file a kind: files to blocks of text (`blocks`), blocks to passages (`passages`)."""
