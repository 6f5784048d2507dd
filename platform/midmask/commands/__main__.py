"""`python -m midmask.commands` is the console command `midmask`."""

from midmask.commands.shell import main

main()
