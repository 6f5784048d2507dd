"""Documents of several kinds, by kind: files to blocks of text (`blocks`), blocks to passages (`passages`)."""
