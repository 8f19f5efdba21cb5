"""``causeway serve``: serve a lake over HTTP, and create its blocks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from causeway_proofs.errors import InvalidInput

from causeway.cli import shell
from causeway.cli.options import argument, option
from causeway.cli.output.progress import show_spinner, stderr_console
from causeway.cli.process import compile_before_use
from causeway.cli.scenario_options import ProgramsOfLake, parse_setting, program_sources
from causeway.service.journal import AUTOMATIC, LineJournal, parse_level
from causeway.service.node.clock import MAX_LEAD_SECONDS, MAX_STEP_SECONDS, ClockBounds

if TYPE_CHECKING:
    from causeway.scenarios.scenario import Scenario
    from causeway.storage.lake import Manifest


ADDRESS, BLOCKS, KEYS, OUTPUT = "Address, and who may ask", "Blocks and their clock", "Keys", "Output"


def command(
    lake: Annotated[str, argument("Folder or URI of the lake; created if absent.")],
    scenario: Annotated[Path | None, option("Scenario file (TOML); an existing lake has its own.")] = None,
    programs: ProgramsOfLake = None,
    host: Annotated[str, option("Address to listen on.", panel=ADDRESS, show_default=True)] = "127.0.0.1",
    port: Annotated[
        int, option("Port to listen on; 0: any free port.", panel=ADDRESS, min=0, max=65535, show_default=True)
    ] = 8420,
    block_seconds: Annotated[
        float, option("Seconds between blocks; 0: only on demand.", panel=BLOCKS, min=0, max=86_400, show_default=True)
    ] = 1.0,
    on_demand: Annotated[bool, option("Make a block as soon as there is work.", "--on-demand", panel=BLOCKS)] = False,
    drop_redundant: Annotated[
        bool, option("Refuse transactions that would have no effect.", "--drop-redundant", panel=BLOCKS)
    ] = False,
    max_step: Annotated[
        float,
        option(
            "Most seconds that a header moves the clock on in one block.",
            panel=BLOCKS,
            min=0,
            max=86_400,
            show_default=True,
        ),
    ] = MAX_STEP_SECONDS,
    max_lead: Annotated[
        float,
        option(
            "Most seconds that headers move the clock ahead of the lake's own.",
            panel=BLOCKS,
            min=0,
            max=1e9,
            show_default=True,
        ),
    ] = MAX_LEAD_SECONDS,
    public: Annotated[bool, option("Allow a --host that strangers can reach.", "--public", panel=ADDRESS)] = False,
    name: Annotated[
        list[str] | None, option("Host name by which it is asked; may be repeated.", metavar="NAME", panel=ADDRESS)
    ] = None,
    tls_cert: Annotated[Path | None, option("Certificate for TLS (PEM).", panel=ADDRESS)] = None,
    tls_key: Annotated[Path | None, option("Its secret key (PEM).", panel=ADDRESS)] = None,
    relayer: Annotated[
        list[str] | None,
        option("Public key of who may relay here; may be repeated; without any, all.", metavar="KEY", panel=ADDRESS),
    ] = None,
    validator_key: Annotated[
        list[str] | None, option("Key file of a validator; may be repeated.", metavar="CHAIN=FILE", panel=KEYS)
    ] = None,
    validators: Annotated[
        list[str] | None,
        option("Public keys of another chain's validators; may be repeated.", metavar="CHAIN=KEY,KEY", panel=KEYS),
    ] = None,
    chain_key: Annotated[
        list[str] | None, option("Key file of a certifying chain; may be repeated.", metavar="CHAIN=FILE", panel=KEYS)
    ] = None,
    drawn_keys: Annotated[
        bool, option("Draw validators' keys from the seed: a simulation, on this machine.", "--drawn-keys", panel=KEYS)
    ] = False,
    newest_copy: Annotated[
        bool, option("No newer copy of the lake was served; FILE.signed is lost.", "--newest-copy", panel=KEYS)
    ] = False,
    settings: Annotated[
        list[str] | None, option("A key of the scenario; may be repeated.", "--set", metavar="KEY=VALUE")
    ] = None,
    as_json: Annotated[
        bool, option("Print one JSON object with the address, then one per block.", "--json", panel=OUTPUT)
    ] = False,
    log_level: Annotated[
        str, option("Minimum log level: debug, info, warning, error, none.", panel=OUTPUT, show_default=True)
    ] = AUTOMATIC,
) -> int:
    """Serve a lake over HTTP, and make its blocks.

    Relay processes and others can query headers, queues, proofs, accounts and metrics (/metrics). Stop it with Ctrl-C
    or SIGTERM; committed heights are kept, and the same command continues.

    Validators and chains sign with keys in files (causeway key new FILE); what users and relay processes send is
    signed, too.

    [bold]Example[/bold]: causeway serve lake --scenario my.toml --validator-key left=left.key --validators right=KEY
    """
    from causeway.service.http.guard import require_host_name
    from causeway.service.http.listening import bind_socket
    from causeway.service.keys.key_files import public_key
    from causeway.service.keys.validators import add_chain_keys, add_validators
    from causeway.service.node.api import ServingLog
    from causeway.service.node.node import BlockPace, Node
    from causeway.service.node.server import Tls, open_extra_addresses, require_local, serve, socket_url

    if not block_seconds and not on_demand:
        raise InvalidInput("--block-seconds: 0 makes blocks on demand only; add --on-demand")
    require_local(host, public)
    for host_name in name or ():
        require_host_name(host_name)
    if public and drawn_keys:
        raise InvalidInput("--drawn-keys: strangers could sign as your validators; not with --public")
    tls = Tls.of(tls_cert, tls_key)
    carriers = [public_key(text, "--relayer") for text in relayer or ()]
    log = ServingLog(LineJournal("serve", parse_level(log_level, terminal=stderr_console().is_terminal)))
    listening = bind_socket(host, port)
    try:
        compile_before_use()
        with show_spinner("Opening the lake"):
            found = _scenario(lake, scenario, programs or (), dict(parse_setting(text) for text in settings or ()))
            options = {"drawn": drawn_keys, "newest": newest_copy}
            network, keys = add_validators(found, validator_key or (), validators or (), **options)
            if network.protocol.certifies or chain_key:
                network, keys = add_chain_keys(network, chain_key or (), newest=newest_copy)
            if public and keys.drawn:
                text = "is drawn from the seed, so strangers could sign as it: with --public, give --chain-key"
                raise InvalidInput(f"{keys.drawn[0]}: its key {text} {keys.drawn[0]}=FILE (causeway key new --chain)")
            pace, bounds = BlockPace(block_seconds, on_demand), ClockBounds(max_step, max_lead)
            node = Node(network, lake, pace, drop_redundant=drop_redundant, clock=bounds, keys=keys, carriers=carriers)
        with node, open_extra_addresses(node, public) as further:
            where = socket_url(listening, tls)

            def started() -> None:
                nodes = [{"key": one.address.key, "url": one.url(tls)} for one in further]
                if as_json:
                    content = {"url": where, "height": node.network.height, **({"nodes": nodes} if nodes else {})}
                    print(json.dumps(content), flush=True)
                else:
                    shell.print_line(f"serving {lake} at {where}, height {node.network.height}; Ctrl-C stops")
                    for one in nodes:
                        shell.print_line(f"{one['key']}: {one['url']}")
                    owners = "validators'" if drawn_keys else "chains'" if keys.drawn and nodes else ""
                    if owners:
                        shell.print_line(
                            f"{owners} keys are drawn from the seed: anybody can sign as them, a simulation only"
                        )
                log.started(where, lake, node.network.height)

            console = stderr_console()
            status = console.status("") if console.is_terminal and not as_json else None

            def committed(manifest: Manifest) -> None:
                log.committed(manifest, len(node.pool))
                if as_json:
                    content = {"height": manifest.height, "tick": manifest.tick, "rows": dict(manifest.rows)}
                    print(json.dumps(content), flush=True)
                elif status is not None:
                    status.update(f"height {manifest.height}, tick {manifest.tick}, {len(node.pool)} waiting")

            if status is not None:
                status.start()
            try:
                serve(node, listening, committed, hosts=name or (), tls=tls, log=log, started=started, further=further)
            finally:
                if status is not None:
                    status.stop()
            log.stopped(node.network.height)
            if not as_json:
                shell.print_line(f"stopped at height {node.network.height}")
    finally:
        listening.close()
    return shell.OK


def _scenario(lake: str, path: Path | None, programs: Sequence[str], overrides: dict[str, str]) -> Scenario:
    """Return the scenario of a file, or that of an existing lake; in-process by default."""
    from causeway.config.document import quote_toml
    from causeway.scenarios.scenario import load_scenario, recorded_scenario
    from causeway.storage.lake import Lake

    overrides = {"network.executor": quote_toml("in_process"), **overrides}
    if path is not None and programs:
        raise InvalidInput("--programs: of a lake that is served without --scenario")
    if path is not None:
        return load_scenario(path, overrides)
    if len(overrides) > 1:
        raise InvalidInput("--set: changes keys of a scenario file; give one with --scenario")
    content = Lake.at(lake).about()["scenario"]
    if content["traffic"].get("source") == "recorded":
        raise InvalidInput("--scenario: missing; the lake does not say where its recorded traffic is")
    content["network"]["executor"] = "in_process"
    return recorded_scenario(content, lake, program_sources(None, programs))
