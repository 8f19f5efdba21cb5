"""Print the keys of a scenario file as Markdown, from the models that validate them.

``python -m tests.scenario_reference`` prints it for docs/reference/scenario.md.
"""

from __future__ import annotations

from typing import Any, get_args

from causeway.config.section import ScenarioSection
from causeway.core.text import format_value
from causeway.protocols.registry import find_protocol, protocol_names
from causeway.protocols.shared.faults import FAULT_KINDS
from causeway.scenarios.settings import (
    ChainSection,
    ChangeSection,
    InstallSection,
    MovedSection,
    MoveSection,
    NetworkSection,
    NodesSection,
    ProgramSection,
    SplitSection,
    TransportSection,
    UpgradeSection,
)
from causeway.scenarios.traffic_settings import (
    BurstsSection,
    CallSection,
    ChannelsSection,
    ColumnsSection,
    GeneratedSection,
    NoTrafficSection,
    RecordedSection,
    ScriptSection,
    SendSection,
)


def _fault_sections() -> list[tuple[str, type[ScenarioSection]]]:
    """Return the kinds of faults of all protocols: the common ones, then those of each."""
    found: list[tuple[str, type[ScenarioSection]]] = [(_kinds(model), model) for model in FAULT_KINDS]
    for name in protocol_names():
        own = [model for model in find_protocol(name).fault_kinds() if model not in FAULT_KINDS]
        found += [(f"{_kinds(model)}, under {name}", model) for model in own]
    return found


def _kinds(model: type[ScenarioSection]) -> str:
    *others, last = (f'"{kind}"' for kind in get_args(model.model_fields["kind"].annotation))
    return f"[[faults]] with kind = {', '.join(others)}{' or ' if others else ''}{last}"


SECTIONS: tuple[tuple[str, type[ScenarioSection]], ...] = (
    ("[network]", NetworkSection),
    ("[transport]", TransportSection),
    ("[[chains]]", ChainSection),
    ("[[programs]]", ProgramSection),
    ("[[moves]]", MoveSection),
    ("[[changes]]", ChangeSection),
    ("install = [{ ... }] in [[changes]]", InstallSection),
    ("upgrade = [{ ... }] in [[changes]]", UpgradeSection),
    ("move = [{ ... }] in [[changes]]", MovedSection),
    ("[[nodes]]", NodesSection),
    ("[[splits]]", SplitSection),
    *_fault_sections(),
    ('[traffic] with source = "none"', NoTrafficSection),
    ('[traffic] with source = "script"', ScriptSection),
    ("[[traffic.send]]", SendSection),
    ("call = { ... } in [[traffic.send]]", CallSection),
    ('[traffic] with source = "recorded"', RecordedSection),
    ("[traffic.columns]", ColumnsSection),
    ("[traffic.channels]", ChannelsSection),
    ('[traffic] with source = "generated"', GeneratedSection),
    ("[traffic.bursts]", BurstsSection),
)

_POWERS = {2**64 - 1: "2**64 - 1", 2**63 - 1: "2**63 - 1", 2**53: "2**53", 2**32: "2**32"}


def reference() -> str:
    """Return a table of keys for each section: key, type, default, meaning."""
    return "\n\n".join(_section(title, model) for title, model in SECTIONS) + "\n"


def _section(title: str, model: type[ScenarioSection]) -> str:
    said = " ".join((model.__doc__ or "").split()).replace("``", "`")
    lines = [f"### `{title}`", said.split(": ", 1)[1][:1].upper() + said.split(": ", 1)[1][1:], ""]
    lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
    properties = model.model_json_schema()["properties"]
    for name, field in model.model_fields.items():
        key = field.alias or name
        default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
        lines.append(f"| `{key}` | {_type(properties[key])} | {default} | {field.description} |")
    return "\n".join(lines)


def _default(value: Any) -> str:
    if value is None or value in ([], {}) or isinstance(value, ScenarioSection):
        return ""
    return f"`{format_value(value)}`"


def _type(schema: dict[str, Any]) -> str:
    members = [member for member in schema.get("anyOf", [schema]) if member.get("type") != "null"]
    return " or ".join(_one_type(member) for member in members)


def _one_type(schema: dict[str, Any]) -> str:
    if "const" in schema:
        return f"`{format_value(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{format_value(value)}`" for value in schema["enum"])
    names = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "true or false",
        "array": "list of tables",
        "object": "table",
    }
    if schema.get("items", {}).get("type") == "integer":
        return "list of whole numbers"
    if schema.get("items", {}).get("type") == "string":
        return "list of texts"
    name = names.get(schema.get("type", "object" if "$ref" in schema else ""), "see meaning")
    bounds = []
    for key, words in (
        ("minimum", "from"),
        ("exclusiveMinimum", "above"),
        ("maximum", "to"),
        ("exclusiveMaximum", "below"),
    ):
        if key in schema:
            bound = schema[key]
            whole = int(bound) if float(bound).is_integer() else bound
            bounds.append(f"{words} {_POWERS.get(whole, whole)}")
    return f"{name} {' '.join(bounds)}".strip()


if __name__ == "__main__":
    print(reference(), end="")
