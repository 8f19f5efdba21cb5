"""Results of benchmarks as tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.audit.show import audit, nomad
from benchmarks.cycles.show import cycles
from benchmarks.domains.show import domains
from benchmarks.gossip.show import gossip
from benchmarks.proofs.show import proofs
from benchmarks.recorded.show import recorded
from benchmarks.ticks.show import ticks

MIB = 2**20


def render(result: dict[str, Any]) -> RenderableType:
    """Return what one of the ``bench_`` functions gave as what rich prints."""
    shows = {
        "audit": audit,
        "cluster": _cluster,
        "nomad": nomad,
        "rounds": _rounds,
        "floor": _floor,
        "simulation": _simulation,
        "exchange": _exchange,
        "egress": _egress,
        "proofs": proofs,
        "cycles": cycles,
        "domains": domains,
        "gossip": gossip,
        "recorded": recorded,
        "ticks": ticks,
        "serve": _serve,
        "xnet": _xnet,
    }
    shown = shows[result["benchmark"]](result)
    return Group(shown, Text(_machine(result), style="dim"))


def _cluster(result: dict[str, Any]) -> RenderableType:
    title = f"Clusters of this machine: {result['messages']:,} messages a round, {result['rows']:,} rows"
    table = Table(title=title, title_justify="left")
    columns = ("", "workers", "s", "driver s", "workers s", "us each", "read MiB", "written", "shuffled")
    for name in (*columns, "driver Python", "driver Java", "worker MiB"):
        table.add_column(name, justify="right" if name else "left")
    works = dict.fromkeys(work for run in result["runs"].values() for work in run)
    for work in works:
        for workers, run in result["runs"].items():
            if work not in run:
                continue
            own = run[work]
            sizes = ("read_bytes", "written_bytes", "shuffled_bytes")
            peaks = ("driver_python_bytes", "driver_java_bytes", "worker_python_bytes")
            table.add_row(
                work,
                workers,
                f"{own['seconds']:,.1f}",
                f"{own['driver_seconds']:,.2f}",
                f"{own['worker_seconds']:,.1f}",
                f"{own['microseconds_each']:,.2f}",
                *(f"{own[name] / MIB:,.0f}" for name in (*sizes, *peaks)),
            )
    note = "s of driver and workers: processor time; each: a message, row or task; peaks are of the process so far"
    return Group(table, Text(note, style="dim"))


def _egress(result: dict[str, Any]) -> RenderableType:
    steps = list(next(iter(result["processes"].values()))["of_steps"])
    table = Table(title="Messages a second through egress queues with roots", title_justify="left")
    for name in ("processes", "all steps", *steps):
        table.add_column(name, justify="right")
    for count, figures in result["processes"].items():
        rates = (figures["messages_per_second"], *figures["of_steps"].values())
        table.add_row(count, *(f"{rate:,}" for rate in rates))
    return table


def _rounds(result: dict[str, Any]) -> RenderableType:
    table = Table(title="One round, commit included", title_justify="left")
    for name in (
        "messages",
        "",
        "median s",
        "least s",
        "messages/s",
        "processor s",
        "peak MiB",
        "times ours",
        "same result",
    ):
        table.add_column(name, justify="left" if name in ("", "same result") else "right")
    notes = []
    for size in result["sizes"]:
        for name, figures in size["figures"].items():
            ratio = figures.get("ratio")
            table.add_row(
                f"{size['messages']:,}" if ratio is None else "",
                name,
                f"{figures['median_seconds']:.3f}",
                f"{figures['min_seconds']:.3f}",
                f"{figures['messages_per_second']:,}",
                f"{figures['median_processor_seconds']:.3f}",
                f"{figures['peak_bytes'] // MIB:,}",
                "" if ratio is None else f"{ratio:.1f}",
                ""
                if "equal" not in figures
                else "yes"
                if figures["equal"]
                else "NO: " + ", ".join(figures["different_tables"]),
            )
        table.add_section()
        note = f"{size['messages']:,} messages: {size['partitions']} partitions"
        note += f", Java took {size['java_peak_bytes'] // MIB:,} MiB besides"
        if size["left_out"]:
            note += f"; left out for want of memory: {', '.join(size['left_out'])} (--all runs them)"
        notes.append(Text(note, style="dim"))
    return Group(table, *notes)


def _simulation(result: dict[str, Any]) -> RenderableType:
    table = Table(title="Simulated gossip", title_justify="left")
    for name in (
        "nodes",
        "",
        "in time",
        "99 % after ms",
        "copies",
        "KB a node",
        "node-queues/s",
        "processor s",
        "peak MiB",
    ):
        table.add_column(name, justify="left" if name == "" else "right")
    for row in result["rows"]:
        table.add_row(
            f"{row['nodes']:,}",
            row["variant"],
            f"{row['in_time']:.1%}",
            f"{row['p99_ms']:,}" if row["p99_ms"] is not None else "never",
            f"{row['copies_a_body']:.2f}",
            f"{row['sent_bytes_a_node'] / 1000:,.0f}",
            f"{row['node_queues_per_processor_second']:,}",
            f"{row['processor_seconds']:.1f}",
            f"{row['peak_bytes'] / MIB:,.0f}",
        )
    found = result.get("oracle")
    if found is None:
        return table
    same = "the same" if found["equal"] else "not the same"
    text = f"plain Python takes {found['ratio']} times as long for {found['nodes']} nodes, and gives {same}"
    return Group(table, Text(text))


def _floor(result: dict[str, Any]) -> RenderableType:
    title = f"A tick with {result['workload']['messages']:,} messages, {result['ticks']} ticks, milliseconds"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in ("median", "95 % below", "least", "most"):
        table.add_column(name, justify="right")
    names = {"in_process": "in process", "spark_1": "Spark, 1 partition", "spark_2": "Spark, 2 partitions"}
    for name, figures in result["figures"].items():
        columns = ("median_ms", "p95_ms", "min_ms", "max_ms")
        table.add_row(names.get(name, name), *(f"{figures[column]:.1f}" for column in columns))
    return table


def _exchange(result: dict[str, Any]) -> RenderableType:
    title = f"A tick with {result['workload']['messages']:,} messages, {result['workload']['subnets']:,} chains"
    table = Table(title=title, title_justify="left")
    columns = {
        "opens": "files opened",
        "looks": "looked for",
        "files": "written",
        "bytes": "bytes read",
        "manifest_bytes": "bytes of manifest",
        "median_ms": "median ms",
    }
    for name in ("buckets", *columns.values()):
        table.add_column(name, justify="right")
    for buckets, figures in result["figures"].items():
        table.add_row(buckets, *(f"{figures[column]:,}" for column in columns))
    return table


def _xnet(result: dict[str, Any]) -> RenderableType:
    title = f"Certified slices over HTTP, messages of {result['payload_bytes']:,} bytes"
    table = Table(title=title, title_justify="left")
    for name in ("messages", "bytes", "served/s", "processor ms", "pulled/s", "processor ms", "messages pulled/s"):
        table.add_column(name, justify="right")
    for row in result["slices"]:
        table.add_row(
            f"{row['messages']:,}",
            f"{row['bytes']:,}",
            *(f"{row[f'{name}_{what}']:,}" for name in ("served", "pulled") for what in ("per_second", "processor_ms")),
            f"{row['pulled_per_second'] * row['messages']:,.0f}",
        )
    return table


def _serve(result: dict[str, Any]) -> RenderableType:
    title = f"Health of a served lake, 99th percentile under attack {result['ratio']} times that at rest"
    table = Table(title=title, title_justify="left")
    columns = ("", "asked", "p50 ms", "p99 ms", "most ms", "messages taken", "refused", "bodies", "processor s", "MiB")
    for name in columns:
        table.add_column(name, justify="right" if name else "left")
    for name, figures in (("idle", result["idle"]), (f"{result['clients']} hostile clients", result["attacked"])):
        table.add_row(
            name,
            f"{figures['answers']:,}",
            *(f"{figures['health_ms'][which]:,}" for which in ("p50", "p99", "most")),
            *(f"{figures['messages'].get(what, 0):,}" for what in ("taken", "refused")),
            f"{sum(figures['bodies'].values()):,}",
            f"{figures['processor_seconds']:,}",
            f"{figures['memory_mib']:,}",
        )
    return table


def _machine(result: dict[str, Any]) -> str:
    about = result["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in about["packages"].items())
    load = "" if about["load_before"] is None else f", load before {about['load_before']}"
    master = f"; master {result['master']}" if "master" in result else ""
    return (
        f"{about['processor']}, {about['cores']} cores, {about['memory_bytes'] // 2**30} GiB, {about['system']}{load}; "
        f"Python {about['python']}, {packages}{master}"
    )
