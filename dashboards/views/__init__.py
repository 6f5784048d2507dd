"""The pages, one file each: `show(context)` draws it. They only read."""
