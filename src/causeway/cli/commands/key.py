"""``causeway key``: key files of users, relayers, validators and chains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from causeway.cli import shell
from causeway.cli.help import add_command
from causeway.cli.options import argument, option

if TYPE_CHECKING:
    from causeway.service.keys.key_files import AccountKey, ChainKey

Json = Annotated[bool, option("Print one JSON object.", "--json")]


def new_key(
    file: Annotated[Path, argument("File to write; it must not exist.")],
    chain: Annotated[bool, option("The key of a chain that certifies (BLS12-381).", "--chain")] = False,
    as_json: Json = False,
) -> int:
    """Make a new key (Ed25519) in a file that only you can read, and print its public key.

    [bold]Example[/bold]: causeway key new alice.key
    """
    from causeway.service.keys.key_files import AccountKey, ChainKey, write_key

    key = ChainKey.generate() if chain else AccountKey.generate()
    write_key(file, key)
    _print_key(key, as_json)
    return shell.OK


def show_key(
    file: Annotated[Path, argument("A key file.")],
    public: Annotated[bool, option("Print the public key alone.", "--public")] = False,
    as_json: Json = False,
) -> int:
    """Print the public key of a key file; of one that is no chain's, the numbers by which served lakes know it, too.

    [bold]Example[/bold]: causeway key show alice.key
    """
    from causeway.service.keys.key_files import read_any_key

    key = read_any_key(file)
    if public:
        print(key.public.hex())
    else:
        _print_key(key, as_json)
    return shell.OK


def show_chain_keys(
    scenario: Annotated[Path, argument("A scenario file (TOML).")],
    as_json: Json = False,
) -> int:
    """Print the public keys of the chains that a scenario runs itself, as far as they are drawn from its seed.

    Other deployments are told them. Whoever knows the seed can sign as these chains: a simulation only.

    [bold]Example[/bold]: causeway key drawn examples/xnet_left.toml
    """
    from causeway_proofs.errors import InvalidInput

    from causeway.protocols.registry import protocol_names
    from causeway.scenarios.scenario import load_scenario

    loaded = load_scenario(scenario)
    keys_of = loaded.protocol.part("drawn_keys")
    if keys_of is None:
        known = ", ".join(protocol_names("drawn_keys"))
        raise InvalidInput(f"{scenario}: network.protocol: {loaded.protocol.name}: keys are drawn under {known}")
    keys: dict[str, str] = keys_of(loaded)
    if as_json:
        print(json.dumps(keys))
    else:
        for name, key in keys.items():
            print(f"{name}  {key}")
    return shell.OK


def _print_key(key: AccountKey | ChainKey, as_json: bool) -> None:
    from causeway.service.keys.key_files import AccountKey
    from causeway.service.keys.signing import carrier_number, sender_number

    numbers = {}
    if isinstance(key, AccountKey):
        numbers = {"sender": sender_number(key.public), "relayer": carrier_number(key.public)}
    if as_json:
        print(json.dumps({"public": key.public.hex(), **numbers}))
        return
    for name, value in {"public": key.public.hex(), **numbers}.items():
        print(f"{name:<9}{value}")


def build() -> typer.Typer:
    """Build the group of commands.

    Returns:
        The Typer application.
    """
    app = typer.Typer(no_args_is_help=True, help="Make and show the keys of users, relayers, validators and chains.")
    add_command(app, "new", new_key, "key")
    add_command(app, "show", show_key, "key")
    add_command(app, "drawn", show_chain_keys, "key")
    return app
