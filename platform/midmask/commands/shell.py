"""The console command `midmask`. `midmask --print-completion bash` (or zsh) writes a completion script."""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

import shtab

from midmask import __version__
from midmask.app.flags import Parser, add_shared_flags
from midmask.app.job import run, run_to_exit
from midmask.commands import JOBS, TOOLS
from midmask.errors import unknown

EPILOG = """midmask NAME --help shows the flags of a command. Completion:
  bash  eval "$(midmask --print-completion bash)"
  zsh   eval "$(midmask --print-completion zsh)"
"""


def main() -> NoReturn:
    """Runs the command that was typed. Exit codes: as those of jobs."""
    name, rest = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("--help", [])
    if name in JOBS:
        job = JOBS[name].load()
        file = Path.cwd() / f"{JOBS[name].program}.py"  # the project is looked for from here upwards
        run(job.work, job.help, job.add_flags, arguments=rest, job_file=file, prog=f"midmask {name}")
    run_to_exit(partial(run_tool, name, rest))


def run_tool(name: str, rest: list[str]) -> None:
    """A command that is no job, or the flags of `midmask` itself."""
    if name in TOOLS:
        tool = TOOLS[name].load()
        parser = Parser(prog=f"midmask {name}", description=tool.help)
        tool.add_flags(parser)
        tool.work(parser.parse_intermixed_args(rest))
    elif name.startswith("-"):
        whole_parser().parse_args([name, *rest])
    else:
        raise unknown("command", name, [*JOBS, *TOOLS])


def whole_parser() -> argparse.ArgumentParser:
    """All commands with all flags, for --help and for completion."""
    parser = Parser(prog="midmask", description="Middle training of encoders for retrieval.", epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"midmask {__version__}")
    shtab.add_argument_to(parser, ["--print-completion"], help="print a completion script and stop")
    commands = parser.add_subparsers(metavar="NAME", title="commands", required=True)
    for name, command in {**JOBS, **TOOLS}.items():
        loaded = command.load()
        subparser = commands.add_parser(name, help=command.summary, description=loaded.help)
        if name in JOBS:
            add_shared_flags(subparser)
        loaded.add_flags(subparser)
    return parser
