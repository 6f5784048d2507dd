"""From documents without labelled queries to a verdict and a model: which middle training, and what it gains.

Makes queries from the documents, trains the candidates in rounds within a budget, and says which one to take, how sure
that is and what it costs. Interrupted, it goes on when submitted again, with what is left of the budget.
"""

from argparse import ArgumentParser, ArgumentTypeError, Namespace

from midmask.app.job import Options


def add_flags(parser: ArgumentParser) -> None:
    parser.set_defaults(sections=("queries.",))
    parser.add_argument(
        "--budget", default="30m", metavar="TIME", help="by the clock: 30m (default), 8h, 1h30m; or 4gpuh of all GPUs"
    )
    parser.add_argument(
        "--query-sources",
        type=_weights,
        metavar="LIST",
        help="where queries come from, with weights: titles=1,sentences=1,keyphrases=1 (default), spans, "
        "model:FOLDER, http:URL",
    )
    parser.add_argument(
        "--judged-by",
        metavar="SOURCES",
        help="sources whose queries judge while the others train, divided by commas; default: titles where passages "
        "have their own, else sentences; all: each source does both",
    )
    parser.add_argument("--queries", metavar="FILE", help="real queries without judgements, one a line, mixed in")
    parser.add_argument("--max-queries", type=int, metavar="N", help="made queries that are kept; default: 3000")
    parser.add_argument(
        "--teacher", metavar="FOLDER", help="a cross-encoder: the best system also learns its margins (GPL)"
    )
    parser.add_argument("--systems", metavar="NAMES", help="recipes, divided by commas; default: seven of them")
    parser.add_argument("--representations", metavar="NAMES", help="of dense, splade, hybrid; default: all")
    parser.add_argument(
        "--out", metavar="FOLDER", help="folder of the verdict; default: verdicts/CORPUS in the project"
    )
    parser.add_argument(
        "--reveal", action="store_true", help="then look at the corpus's own judgements: how right was the verdict?"
    )


def _weights(text: str) -> dict[str, float]:
    """source -> weight, of SOURCE=WEIGHT or SOURCE, divided by commas."""
    found = {}
    for part in filter(None, text.split(",")):
        source, _, weight = part.rpartition("=") if "=" in part else (part, "", "1")
        try:
            found[source.strip()] = float(weight)
        except ValueError:
            raise ArgumentTypeError(f"{part!r} is not of the form SOURCE=WEIGHT") from None
    if not found:
        raise ArgumentTypeError("it is empty; write such as titles=1,sentences=1")
    return found


def work(options: Options, flags: Namespace) -> None:
    from midmask.choice.job import choose_job

    choose_job(options, flags)
