"""``python -m benchmarks``: how fast rounds, proofs and cycles are on this machine, next to others that do the same."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from causeway_proofs.errors import InvalidInput

from causeway.cli import shell
from causeway.cli.output.progress import stderr_console, stdout_console

PROGRAM = "python -m benchmarks"

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Measure rounds, proofs and cycles on this machine.",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Master = Annotated[str, typer.Option(help="Spark master, such as 'local[2]'.")]
Folder = Annotated[
    str | None,
    typer.Option("--lake", metavar="DIR", help="Folder for the lakes, which are removed again.", show_default=False),
]
Subnets = Annotated[int, typer.Option(min=1, help="Chains.")]
Canisters = Annotated[int, typer.Option(min=2, help="Programs on them.")]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="REVISION",
        help="Revision of this repository, or folder of another clone, that takes turns with this one.",
        show_default=False,
    ),
]
Programs = Annotated[int, typer.Option(min=2, help="Programs on them, as many on each.")]
Repeats = Annotated[int, typer.Option(min=1, help="How often each is measured.")]
Executors = Annotated[
    str, typer.Option("--executors", metavar="NAME,NAME", help="Who runs the blocks: in_process, spark.")
]
Payload = Annotated[int, typer.Option("--payload-bytes", min=0, help="Bytes of a message's body.")]


@app.command("rounds", epilog=shell.EPILOG)
def rounds(
    messages: Annotated[str, typer.Option(metavar="N,N", help="Messages of a round; several sizes.")] = "1e4,1e5,1e6",
    repeat: Annotated[int, typer.Option("--rounds", min=1, help="How often each is measured.")] = 5,
    against: Annotated[
        str, typer.Option(metavar="NAME,NAME", help="Other tools: python, duckdb, polars; empty for none.")
    ] = "python,duckdb,polars",
    subnets: Subnets = 40,
    canisters: Canisters = 20_000,
    payload_bytes: Payload = 64,
    certification: Annotated[
        str, typer.Option(help="bls or threshold: measure the same network with certified states, too.")
    ] = "off",
    master: Master = "local[*]",
    lake: Folder = None,
    force: Annotated[bool, typer.Option("--all", help="Run other tools even if memory may not suffice.")] = False,
    as_json: Json = False,
) -> int:
    """Measure one round of a network in steady state, next to the same round by other tools.

    All read the same committed state, and what they commit is compared. Exit code 1: some result differs.

    [bold]Example[/bold]: python -m benchmarks rounds --messages 1e5,1e6 --against duckdb,polars
    """
    from benchmarks import bench_rounds, render

    sizes = [_number(text, "messages") for text in _names(messages)]
    result = _watched(
        "Measuring rounds",
        lambda tell: bench_rounds(
            sizes,
            subnets=subnets,
            canisters=canisters,
            payload_bytes=payload_bytes,
            rounds=repeat,
            comparators=_names(against),
            certification=certification,
            master=master,
            lake_folder=lake,
            force=force,
            progress=tell,
        ),
    )
    _print(result, render, as_json)
    equal = all(figures.get("equal", True) for size in result["sizes"] for figures in size["figures"].values())
    return shell.OK if equal else shell.FAILED


@app.command("simulation", epilog=shell.EPILOG)
def simulation(
    nodes: Annotated[str, typer.Option(metavar="N,N", help="Nodes; several sizes.")] = "100,1000,5000",
    variants: Annotated[
        str | None, typer.Option(metavar="NAME;NAME", help="What is changed; default: all.", show_default=False)
    ] = None,
    oracle: Annotated[int, typer.Option(min=0, help="Nodes beside plain Python; 0: without.")] = 1_000,
    as_json: Json = False,
) -> int:
    """Simulate gossip: what arrives within one block, what each improvement gains, how fast it is simulated.

    Exit code 1: the specification's nodes got something else.

    [bold]Example[/bold]: python -m benchmarks simulation --nodes 100,1000
    """
    from benchmarks import bench_simulation, render
    from benchmarks.simulation import VARIANTS

    sizes = [_number(text, "nodes") for text in _names(nodes)]
    named = tuple(VARIANTS) if variants is None else tuple(part.strip() for part in variants.split(";"))
    result = _watched("Simulating gossip", lambda tell: bench_simulation(sizes, named, oracle=oracle, progress=tell))
    if as_json:
        print(json.dumps(result))
    else:
        stdout_console().print(render(result))
    return shell.OK if result.get("oracle", {"equal": True})["equal"] else shell.FAILED


@app.command("floor", epilog=shell.EPILOG)
def floor(
    messages: Annotated[int, typer.Option(min=1, help="Messages of a tick.")] = 100,
    ticks: Annotated[int, typer.Option(min=1, help="Ticks measured.")] = 100,
    subnets: Subnets = 40,
    canisters: Canisters = 20_000,
    payload_bytes: Payload = 64,
    master: Master = "local[*]",
    lake: Folder = None,
    as_json: Json = False,
) -> int:
    """Measure the smallest tick: in the calling process, and on Spark with one and two tasks.

    [bold]Example[/bold]: python -m benchmarks floor --json
    """
    from benchmarks import bench_floor, render

    result = _watched(
        "Measuring small ticks",
        lambda tell: bench_floor(
            messages,
            ticks=ticks,
            subnets=subnets,
            canisters=canisters,
            payload_bytes=payload_bytes,
            master=master,
            lake_folder=lake,
            progress=tell,
        ),
    )
    _print(result, render, as_json)
    return shell.OK


@app.command("exchange", epilog=shell.EPILOG)
def exchange(
    buckets: Annotated[str, typer.Option(metavar="N,N", help="How many buckets the chains are cut into.")] = "4,16,64",
    messages: Annotated[int, typer.Option(min=1, help="Messages of a tick.")] = 2_000,
    ticks: Annotated[int, typer.Option(min=1, help="Ticks measured.")] = 4,
    subnets: Subnets = 256,
    canisters: Canisters = 2_560,
    payload_bytes: Payload = 64,
    lake: Folder = None,
    as_json: Json = False,
) -> int:
    """Measure what a tick opens, reads and writes when the chains are cut into many buckets.

    The buckets run one after the other in this process, each as a task of Spark does.

    [bold]Example[/bold]: python -m benchmarks exchange --buckets 4,16
    """
    from benchmarks import bench_exchange, render

    counts = [_number(text, "buckets") for text in _names(buckets)]
    result = _watched(
        "Measuring the exchange",
        lambda tell: bench_exchange(
            counts,
            messages=messages,
            ticks=ticks,
            subnets=subnets,
            canisters=canisters,
            payload_bytes=payload_bytes,
            lake_folder=lake,
            progress=tell,
        ),
    )
    _print(result, render, as_json)
    return shell.OK


@app.command("egress", epilog=shell.EPILOG)
def egress(
    messages: Annotated[int, typer.Option(min=1, help="Messages of a block of all parachains.")] = 40_000,
    parachains: Annotated[int, typer.Option(min=2, help="Parachains.")] = 20,
    payload_bytes: Payload = 64,
    repeat: Annotated[int, typer.Option("--rounds", min=1, help="How often each is measured.")] = 15,
    processes: Annotated[int, typer.Option(min=1, help="Processes that do it at once.")] = 2,
    as_json: Json = False,
) -> int:
    """Measure messages through egress queues of parachains: roots, inclusion, and bodies held against roots.

    [bold]Example[/bold]: python -m benchmarks egress --messages 100000 --processes 4
    """
    from benchmarks import bench_egress, render

    result = _watched(
        "Measuring egress queues",
        lambda tell: bench_egress(
            messages,
            parachains=parachains,
            payload_bytes=payload_bytes,
            rounds=repeat,
            processes=processes,
            progress=tell,
        ),
    )
    _print(result, render, as_json)
    return shell.OK


@app.command("proofs", epilog=shell.EPILOG)
def proofs(
    size: Annotated[str, typer.Option(metavar="N", help="Messages of a queue that is committed to.")] = "1e6",
    repeats: Annotated[
        int, typer.Option(min=1, help="How often each is measured; what takes the whole queue, half as often.")
    ] = 5,
    family: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME",
            help="Of hashing, ic, ics23, tendermint, substrate, tries, storage, mmr, scale; all of them by default.",
            show_default=False,
        ),
    ] = "",
    others: Annotated[
        bool,
        typer.Option(
            "--others", help="Take turns with other people's verifiers, which npm, cargo and go get for the run."
        ),
    ] = False,
    as_json: Json = False,
) -> int:
    """Measure commitments and proofs: hashes, queues committed to, proofs made and verified.

    Beside them plain loops, building anew, and verifiers by other people, on the same values in the same run.

    [bold]Example[/bold]: python -m benchmarks proofs --family ics23,ic --others
    """
    from benchmarks import bench_proofs, render
    from benchmarks.proofs.bench import FAMILIES

    messages = _number(size, "size")
    result = _watched(
        "Measuring proofs",
        lambda tell: bench_proofs(
            messages, repeats=repeats, families=_names(family) or FAMILIES, others=others, progress=tell
        ),
    )
    _print(result, render, as_json)
    return shell.OK


@app.command("cycles", epilog=shell.EPILOG)
def cycles(
    messages: Annotated[str, typer.Option(metavar="N", help="Calls a block; each is a cycle.")] = "3e5",
    ticks: Annotated[int, typer.Option(min=3, help="Blocks with calls of the steady state.")] = 6,
    repeats: Repeats = 3,
    proofs: Annotated[
        str, typer.Option(metavar="NAME,NAME", help="How relayers prove entries: range, single.")
    ] = "range,single",
    executors: Executors = "in_process,spark",
    plain: Annotated[int, typer.Option(min=0, help="Cycles of the comparison with plain Python; 0 for none.")] = 10_000,
    zones: Annotated[int, typer.Option(min=2, help="Zones, all connected with each other.")] = 40,
    programs: Programs = 20_000,
    payload_bytes: Payload = 64,
    master: Master = "local[2]",
    lake: Folder = None,
    as_json: Json = False,
) -> int:
    """Measure whole cycles of IBC queues: packets sent, proved, received; receipts proved and taken.

    All calls in one block, and as many in each of several; from the first block to the last, commits included.

    [bold]Example[/bold]: python -m benchmarks cycles --messages 1e5 --proofs range --executors spark
    """
    from benchmarks import bench_cycles, render

    number = _number(messages, "messages")
    result = _watched(
        "Measuring cycles",
        lambda tell: bench_cycles(
            number,
            ticks=ticks,
            zones=zones,
            programs=programs,
            payload_bytes=payload_bytes,
            proofs=_names(proofs),
            executors=_names(executors),
            repeats=repeats,
            plain=plain,
            master=master,
            lake_folder=lake,
            progress=tell,
        ),
    )
    _print(result, render, as_json)
    return shell.OK


@app.command("domains", epilog=shell.EPILOG)
def domains(
    messages: Annotated[str, typer.Option(metavar="N", help="Calls a block; each has a response.")] = "2e4",
    ticks: Annotated[int, typer.Option(min=3, help="Blocks with calls.")] = 20,
    repeats: Repeats = 3,
    sections: Annotated[
        str,
        typer.Option(metavar="NAME,NAME", help="load: many channels; channels, keys: how it scales with their number."),
    ] = "load,channels,keys",
    executors: Executors = "in_process,spark",
    others: Annotated[
        str, typer.Option(metavar="N,N", help="Other entries in the storage of each of two domains.")
    ] = "1e4,1e5,1e6",
    chains: Annotated[int, typer.Option("--domains", min=2, help="Domains, with a channel between any two.")] = 15,
    programs: Programs = 15_000,
    payload_bytes: Payload = 64,
    master: Master = "local[2]",
    lake: Folder = None,
    as_json: Json = False,
) -> int:
    """Measure messages between domains with their responses: four proofs each way, all of them checked.

    From the first block to the last, commits included. K and D are short: they decide how much waits.

    [bold]Example[/bold]: python -m benchmarks domains --messages 5000 --sections load --executors in_process
    """
    from benchmarks import bench_domains, render

    number, counts = _number(messages, "messages"), [_number(text, "others") for text in _names(others)]
    result = _watched(
        "Measuring messages between domains",
        lambda tell: bench_domains(
            number,
            ticks=ticks,
            domains=chains,
            programs=programs,
            payload_bytes=payload_bytes,
            sections=_names(sections),
            executors=_names(executors),
            others=counts,
            repeats=repeats,
            master=master,
            lake_folder=lake,
            progress=tell,
        ),
    )
    _print(result, render, as_json)
    return shell.OK


@app.command("gossip", epilog=shell.EPILOG)
def gossip(
    nodes: Annotated[str, typer.Option(metavar="N,N", help="Nodes of a flood; several sizes.")] = "1000,5000",
    queues: Annotated[int, typer.Option(min=1, help="Queues that reach all nodes.")] = 100,
    degree: Annotated[int, typer.Option(min=2, help="Peers of a node, on average.")] = 10,
    small: Annotated[int, typer.Option(min=3, help="Nodes of the flood that plain Python does, too.")] = 200,
    repeats: Repeats = 3,
    as_json: Json = False,
) -> int:
    """Measure gossip of egress queues: node-queues a second, next to the oracle of the tests, and updates of leaves.

    All times are of the processor. Needs a clone of the repository: the oracle stands in its tests.

    [bold]Example[/bold]: python -m benchmarks gossip --nodes 1000 --queues 100
    """
    from benchmarks import bench_gossip, render

    sizes = [_number(text, "nodes") for text in _names(nodes)]
    result = _watched(
        "Measuring gossip",
        lambda tell: bench_gossip(sizes, queues=queues, degree=degree, small=small, repeats=repeats, progress=tell),
    )
    _print(result, render, as_json)
    return shell.OK


@app.command("audit", epilog=shell.EPILOG)
def audit(
    rows: Annotated[str, typer.Option(metavar="N", help="Rows of the ledger, about.")] = "1e7",
    lanes: Annotated[int, typer.Option(min=4, help="Lanes that they are in.")] = 5_000,
    repeats: Repeats = 3,
    against: Annotated[
        str, typer.Option(metavar="NAME,NAME", help="Other tools: duckdb, polars, spark-sql; empty for none.")
    ] = "duckdb,polars",
    layouts: Annotated[
        str, typer.Option(metavar="NAME,NAME", help="What they read: bucketed, arrived.")
    ] = "bucketed,arrived",
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Audit on Spark, too.")] = True,
    frames: Annotated[bool, typer.Option("--frames", help="Audit the rows as they arrived as a DataFrame.")] = False,
    ingest: Annotated[bool, typer.Option("--ingest/--no-ingest", help="Take the rows as they arrived, too.")] = True,
    cores: Annotated[int | None, typer.Option(min=1, help="Threads, and Spark tasks at once.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="How long each of the others may take.")] = 1_800,
    lake: Folder = None,
    keep: Annotated[
        str | None, typer.Option(metavar="DIR", help="Keep files here, and use those that are there.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Measure the audit of a generated ledger with planted faults, beside other tools with the same checks.

    All must find what was planted, and the same sums.

    [bold]Example[/bold]: python -m benchmarks audit --rows 1e8 --repeats 1 --keep /data/ledgers
    """
    from benchmarks import bench_audit, render

    number = _number(rows, "rows")
    result = _watched(
        "Measuring audits",
        lambda tell: bench_audit(
            number,
            lanes=lanes,
            repeats=repeats,
            against=_names(against),
            layouts=_names(layouts),
            spark=spark,
            frames=frames,
            ingest=ingest,
            cores=cores,
            seconds=seconds,
            folder=lake,
            keep=keep,
            progress=tell,
        ),
    )
    _print(result, render, as_json)
    return shell.OK


@app.command("cluster", epilog=shell.EPILOG)
def cluster(
    workers: Annotated[
        str, typer.Option(metavar="N,N", help="Workers of one core; several clusters. 0: one process.")
    ] = "0,1,2,4",
    messages: Annotated[str, typer.Option(metavar="N", help="Messages of a round; 0: no rounds.")] = "1e6",
    rows: Annotated[str, typer.Option(metavar="N", help="Rows of the ledger, about; 0: no ledger.")] = "1e7",
    rounds: Annotated[int, typer.Option(min=1, help="How often a round is measured.")] = 3,
    memory: Annotated[str, typer.Option(help="Memory of a worker.")] = "3g",
    store: Annotated[
        str | None, typer.Option(metavar="URI", help="Object store of lakes and ledgers.", show_default=False)
    ] = None,
    lake: Folder = None,
    keep: Annotated[
        str | None, typer.Option(metavar="DIR", help="Keep the rows here, and use those that are there.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Measure a round, an ingest and an audit on standalone clusters of this machine, and in one process.

    All must have the same roots, and find what was planted.

    [bold]Example[/bold]: python -m benchmarks cluster --workers 0,1,2,4 --rows 3e8 --messages 1e7
    """
    from benchmarks import bench_cluster, render

    result = _watched(
        "Measuring clusters",
        lambda tell: bench_cluster(
            [_number(text, "workers", 0) for text in _names(workers)],
            messages=_number(messages, "messages", 0),
            rows=_number(rows, "rows", 0),
            rounds=rounds,
            memory=memory,
            store=store,
            folder=lake,
            keep=keep,
            progress=tell,
        ),
    )
    _print(result, render, as_json)
    return shell.OK


@app.command("nomad", epilog=shell.EPILOG)
def nomad(
    recording: Annotated[
        str | None,
        typer.Option("--traffic", metavar="FILE", help="The CSV; default: the one in the clone.", show_default=False),
    ] = None,
    copies: Annotated[int, typer.Option(min=1, help="How many copies of it, each with lanes of its own.")] = 50,
    repeats: Repeats = 3,
    against: Annotated[
        str, typer.Option(metavar="NAME,NAME", help="Other tools: duckdb, polars; empty for none.")
    ] = "duckdb,polars",
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Audit on Spark, too.")] = True,
    lake: Folder = None,
    as_json: Json = False,
) -> int:
    """Measure recorded traffic of a bridge, from CSV to findings: causeway ingest and causeway audit.

    [bold]Example[/bold]: python -m benchmarks nomad --copies 50
    """
    from benchmarks import bench_nomad, render

    result = _watched(
        "Measuring the bridge",
        lambda tell: bench_nomad(
            recording,
            copies=copies,
            repeats=repeats,
            against=_names(against),
            spark=spark,
            folder=lake,
            progress=tell,
        ),
    )
    _print(result, render, as_json)
    return shell.OK


@app.command("recorded", epilog=shell.EPILOG)
def recorded(
    traffic: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Recorded packets (Parquet); by default Cosmos Hub's, which the clone holds.",
            show_default=False,
        ),
    ] = None,
    protocol: Annotated[str, typer.Option(metavar="NAME,NAME", help="Of ic, ibc.")] = "ic,ibc",
    executor: Annotated[str, typer.Option(metavar="NAME", help="spark, or in_process.")] = "spark",
    repeats: Annotated[
        int, typer.Option(min=0, help="Runs with an archive of Java's classes, after the one without.")
    ] = 1,
    against: Against = None,
    ticks: Annotated[int | None, typer.Option(min=1, help="First tick not to run.", show_default=False)] = None,
    master: Master = "local[*]",
    lake: Folder = None,
    as_json: Json = False,
) -> int:
    """Measure the whole command causeway run on recorded packets: start, ticks, summary, and the lake it leaves.

    Beside it the same packets are routed by plain Python, without proofs and without a lake. Exit code 1: another
    Causeway (--against) comes to another root.

    [bold]Example[/bold]: python -m benchmarks recorded --protocol ibc --against HEAD~5
    """
    from benchmarks import bench_recorded, render

    result = _watched(
        "Measuring recorded traffic",
        lambda tell: bench_recorded(
            traffic,
            protocols=_names(protocol),
            executor=executor,
            repeats=repeats,
            against=against,
            ticks=ticks,
            master=master,
            lake_folder=lake,
            progress=tell,
        ),
    )
    _print(result, render, as_json)
    runs = [one for found in result["protocols"].values() for one in found["contestants"].values()]
    return shell.OK if all(one.get("same_root", True) for one in runs) else shell.FAILED


@app.command("ticks", epilog=shell.EPILOG)
def ticks(
    messages: Annotated[int, typer.Option(min=1, help="Messages of a tick.")] = 100,
    number: Annotated[int, typer.Option("--ticks", min=1, help="Ticks of a run, which share its time.")] = 200,
    repeats: Repeats = 5,
    protocol: Annotated[str, typer.Option(metavar="NAME,NAME", help="Of ic, ibc.")] = "ic",
    executors: Executors = "in_process,spark",
    certification: Annotated[
        str, typer.Option(metavar="NAME,NAME", help="Of ic, whether states are certified: off, bls, threshold.")
    ] = "bls",
    against: Against = None,
    chains: Annotated[int, typer.Option(min=2, help="Chains.")] = 40,
    programs: Programs = 20_000,
    payload_bytes: Payload = 64,
    master: Master = "local[*]",
    lake: Folder = None,
    as_json: Json = False,
) -> int:
    """Measure small ticks as a run has them, many in a row: in process and on Spark, per tick.

    [bold]Example[/bold]: python -m benchmarks ticks --protocol ic,ibc --against HEAD~5
    """
    from benchmarks import bench_ticks, render
    from benchmarks.ticks.scenario import SmallTicks

    work = SmallTicks(messages, chains, programs, payload_bytes)
    result = _watched(
        "Measuring small ticks",
        lambda tell: bench_ticks(
            work,
            ticks=number,
            repeats=repeats,
            protocols=_names(protocol),
            executors=_names(executors),
            certifications=_names(certification),
            against=against,
            master=master,
            lake_folder=lake,
            progress=tell,
        ),
    )
    _print(result, render, as_json)
    return shell.OK


@app.command("xnet", epilog=shell.EPILOG)
def xnet(
    messages: Annotated[str, typer.Option(metavar="N,N", help="Messages of a slice.")] = "1,100,1000,10000",
    seconds: Annotated[float, typer.Option(min=0.01, help="How long each is measured.")] = 3.0,
    payload_bytes: Payload = 64,
    as_json: Json = False,
) -> int:
    """Measure certified slices over HTTP: how many a node serves, and how many are pulled and verified, a second.

    [bold]Example[/bold]: python -m benchmarks xnet --messages 100,1000
    """
    from benchmarks import bench_xnet, render

    lengths = [_number(text, "messages") for text in _names(messages)]
    result = _watched(
        "Measuring slices",
        lambda tell: bench_xnet(lengths, seconds=seconds, payload_bytes=payload_bytes, progress=tell),
    )
    _print(result, render, as_json)
    return shell.OK


@app.command("serve", epilog=shell.EPILOG)
def serve(
    clients: Annotated[int, typer.Option(min=1, max=220, help="Hostile clients.")] = 200,
    seconds: Annotated[float, typer.Option(min=1, help="How long each is measured.")] = 20.0,
    as_json: Json = False,
) -> int:
    """Measure how soon a served lake says that it is well, at rest and while clients send it the worst bodies.

    [bold]Example[/bold]: python -m benchmarks serve --clients 50
    """
    from benchmarks import bench_serve, render

    result = _watched("Measuring a server", lambda tell: bench_serve(clients, seconds, progress=tell))
    _print(result, render, as_json)
    return shell.OK


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a benchmark and exit with its code."""
    sys.exit(shell.execute(sys.argv[1:] if arguments is None else arguments, lambda asked: app, PROGRAM))


def _watched(text: str, measure: Callable[[Callable[[str], None]], dict[str, Any]]) -> dict[str, Any]:
    console = stderr_console()
    if not console.is_terminal:
        return measure(lambda step: None)
    with console.status(text, spinner="dots") as status:
        return measure(lambda step: status.update(f"{text}: {step}"))


def _print(result: dict[str, Any], render: Callable[[dict[str, Any]], Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))
    else:
        stdout_console().print(render(result))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _number(text: str, option: str, least: int = 1) -> int:
    try:
        number = float(text)
        if number >= least and number == int(number):
            return int(number)
    except (ValueError, OverflowError):
        pass
    allowed = "above 0" if least else "from 0 on"
    raise InvalidInput(f"{option}: {text} is not a whole number {allowed}; write for example 10000 or 1e6")
