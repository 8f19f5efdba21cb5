"""Every section number that a comment, a docstring or a page cites exists in docs/reference.

A citation is a section ("3.4", "section 5"), a statement ("G1", "L2", "C4"), a decision ("D-3"), an extension ("X-11")
or a hazard ("hazard 15"). It cites the reference that stands before it ("IC reference 2.9, 7"), else the one of its
file's protocol; a file of no protocol has to name the reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
REFERENCES = ROOT / "docs" / "reference"
PROTOCOLS = ("ic", "ibc", "xdm", "icmp")

PROTOCOL_OF_WORD = {
    **{protocol: protocol for protocol in PROTOCOLS},
    "xnet": "ic",
    "ics23": "ibc",
    "tendermint": "ibc",
    "hrmp": "icmp",
    "gossip": "icmp",
    "relay_chain": "icmp",
}
"""Words of paths (folders, parts of file names) and the protocol whose reference such files cite."""

TEXT = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<string>[rRbBfFuU]{0,2}(?:\"\"\".*?(?<!\\)\"\"\"|'''.*?'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))""",
    re.VERBOSE | re.DOTALL,
)
"""Comments and strings of Python."""

STANDARDS = r"RFC|FIPS|SEC|NIST|EIP|BIP|ICS-?\d+|CC\ BY|Keccak\ reference"
"""Other documents: a number after one is a citation of it."""

SOFTWARE = r"Go\ before|Go|Java|Python|Spark|NumPy|numba|Tendermint|gogoproto|prost|ibc-go|ibc-rs|version|versions"
"""Names that a version number follows."""

UNITS = r"s|ms|min|h|[GMK]i?B|a|days|ticks?|times|million"

TOKEN = re.compile(
    rf"""(?P<name>\b(?:icmp|ibc|xdm|ic)\.md\b|\b(?:ICMP|IBC|XDM|IC)\b(?:\s+reference\b)?)
    |(?P<foreign>\b(?:(?:{STANDARDS})\b(?:\s+\d+)?|(?:{SOFTWARE})\s+\d[\w.]*))
    |(?P<statement>(?<![\w.-])(?:[DX]-\d+|[GLC]\d{{1,2}})(?![\w-]))
    |(?P<number>(?<![\w.,/:=<>^*+-])[1-8]\.[1-9]\d?(?![\w%]|\.\d|\s(?:{UNITS})\b|\sto\s\d\.\d\sMB))
    |(?P<hazard>\bhazards?\b)
    |(?P<section>\bsections?\b)
    |(?P<step>\b(?:steps?|checks?|lines?|rules?)\s+\d+(?:\s(?:to|and)\s\d+)?|\(\d+\))
    |(?P<integer>(?<![\w.-])\d{{1,2}}(?![\w-]|\.\d))
    |(?P<glue>[\s,;&"]+|\b(?:and|or|to)\b)
    |(?P<open>\()
    |(?P<word>[\w'.-]*\w|.)""",
    re.VERBOSE | re.DOTALL,
)

SECTIONS = ("1", "2", "3", "4", "5", "6", "7")
"""Sections of a reference that may be cited as a whole."""

CITING_STRING = re.compile(r"(?:[1-8]\.[1-9]\d?|[DX]-\d+)(?:,? (?:\d+|[DXGL]-?\d+|[1-8]\.[1-9]\d?))*")
"""Strings that are citations, such as the sections of checks and guarantees."""

CURVES = re.compile(r"BLS|curve|Lagrange")
"""Texts in which G1 and G2 are groups of points."""


class Citation(NamedTuple):
    """A cited section, the reference that holds it (None: not named), and its position in the text."""

    protocol: str | None
    section: str
    position: int


def protocol_of(path: Path) -> str | None:
    """Return the protocol whose reference a file cites, None if its path names none or several."""
    parts = path.with_suffix("").parts
    words = {*parts, *(word for part in parts for word in re.split("[_-]", part))}
    named = {PROTOCOL_OF_WORD[word] for word in words if word in PROTOCOL_OF_WORD}
    return named.pop() if len(named) == 1 else None


def citations(text: str, protocol: str | None) -> Iterator[Citation]:
    """Yield the citations of a text in a file of ``protocol``."""
    current: str | None = protocol
    foreign = integers = hazards = opened = False
    for token in TOKEN.finditer(text):
        kind, value = token.lastgroup, token.group()
        if kind == "name":
            name = value.split()[0].removesuffix(".md").lower()
            current, integers, foreign, hazards = name, value != name.upper(), False, False
        elif kind == "foreign":
            foreign = True
        elif kind == "hazard":
            hazards = True
        elif kind == "section":
            integers = True
        elif kind == "statement":
            if not foreign and not (value in ("G1", "G2") and CURVES.search(text)):
                # The rules of causal order are statements of one reference, which the audit cites too.
                yield Citation("ibc" if value[0] == "C" else current, value, token.start())
        elif kind == "number":
            if not foreign and (current or integers or opened):
                yield Citation(current, value, token.start())
        elif kind == "integer":
            if hazards:
                yield Citation(current, f"hazard {value}", token.start())
            elif integers and not foreign and value in SECTIONS:
                yield Citation(current, value, token.start())
        elif kind == "open":
            opened = True
        elif kind == "word":
            current, foreign, integers, hazards, opened = protocol, False, False, False, False


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield position and text of the docstrings, comments and citing strings of a module.

    Comment lines in a row are one text.
    """
    start, comment = 0, ""
    for found in TEXT.finditer(source):
        value, line = found.group(), source.rfind("\n", 0, found.start()) + 1
        if value.startswith("#"):
            between = source[start + len(comment) : found.start()]
            if comment and between.count("\n") == 1 and not between.strip():
                comment += between + " " + value[1:]
            else:
                if comment:
                    yield start, comment
                start, comment = found.start(), value
            continue
        alone = not source[line : found.start()].strip() and source[found.end() : found.end() + 1] in ("\n", "")
        docstring = alone and value.endswith(('"""', "'''"))
        if docstring or CITING_STRING.fullmatch(value, 1, len(value) - 1):
            yield found.start(), value
    if comment:
        yield start, comment


@cache
def sections(protocol: str) -> frozenset[str]:
    """Return the anchors of a reference: numbers of headings, statements in bold, and hazards."""
    page = (REFERENCES / f"{protocol}.md").read_text()
    headings = re.findall(r"^#{2,4} (\d+(?:\.\d+)*)\.? ", page, re.MULTILINE)
    statements = re.findall(r"\*\*([DX]-\d+|[GLC]\d+)\b", page)
    hazards = re.findall(r"^(\d+)\. ", page.split("\n## 6", 1)[1].split("\n## ", 1)[0], re.MULTILINE)
    return frozenset([*headings, *statements, *(f"hazard {number}" for number in hazards)])


def problems_of(path: Path, source: str, texts: Iterator[tuple[int, str]]) -> Iterator[str]:
    """Yield file, line and number of each citation that no reference holds."""
    for start, text in texts:
        for protocol, section, position in citations(text, protocol_of(path)):
            place = f"{path}:{source.count(chr(10), 0, start + position) + 1}"
            if protocol is None:
                yield f"{place}: {section}: name the reference, for example 'IC reference {section}'"
            elif section not in sections(protocol):
                yield f"{place}: {section} is not in docs/reference/{protocol}.md"


def modules() -> list[Path]:
    """Return all modules of both distributions and of the tests, but generated ones."""
    folders = [ROOT / "src", ROOT / "tests", *ROOT.glob("packages/*/src"), *ROOT.glob("packages/*/tests")]
    found = (path for folder in folders for path in sorted(folder.rglob("*.py")))
    return [path for path in found if not path.name.endswith("_pb2.py") and path != Path(__file__).resolve()]


def test_comments_and_docstrings_cite_existing_sections() -> None:
    problems: list[str] = []
    for path in modules():
        source = path.read_text()
        problems += problems_of(path.relative_to(ROOT), source, texts_of(source))
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize("folder", ["reference", "explanation/protocols", "decisions"])
def test_pages_cite_existing_sections(folder: str) -> None:
    problems: list[str] = []
    for path in sorted((ROOT / "docs" / folder).glob("*.md")):
        name, page = path.relative_to(ROOT), path.read_text()
        if protocol_of(name) is not None:  # Other records name the cited text in words.
            prose = re.sub(r"^```.*?^```|`[^`\n]*`|\]\([^)\n]*\)", _blank, page, flags=re.MULTILINE | re.DOTALL)
            problems += problems_of(name, page, iter([(0, prose)]))
    assert not problems, "\n" + "\n".join(problems)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", "_", found.group())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_reference_numbers_each_section_once(protocol: str) -> None:
    page = (REFERENCES / f"{protocol}.md").read_text()
    numbers = re.findall(r"^#{2,4} (\d+(?:\.\d+)*)\.? ", page, re.MULTILINE)
    numbers += re.findall(r"^- \*\*([DX]-\d+|[GLC]\d+)\b", page, re.MULTILINE)
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize(
    ("text", "protocol", "expected"),
    [
        ("Induct messages (3.4 (2), D-6, X-13).", "ic", ["ic 3.4", "ic D-6", "ic X-13"]),
        ("Sections 3.4 and 3.5; section 5.", "xdm", ["xdm 3.4", "xdm 3.5", "xdm 5"]),
        ("(XDM reference 2.4, ICMP\nreference 2.3) G1", None, ["xdm 2.4", "icmp 2.3", "None G1"]),
        ("IC reference 2.9, 7; limits of 4 and 5.", "ic", ["ic 2.9", "ic 7"]),
        ("IBC reference X-4, hazards 36 and 37", None, ["ibc X-4", "ibc hazard 36", "ibc hazard 37"]),
        ("docs/reference/ibc.md 2.6: the checks", None, ["ibc 2.6"]),
        ("RFC 9380, section 5.2; FIPS 202; 2.4 s; Spark 4.3; 1.5 times", "ic", []),
        ("A BLS signature is a point of G1.", "ic", []),
        ("2.4 as 1.0; 2.4 to 2.8 MB (2.3)", None, ["None 2.3"]),
        ("IC reference 3.4, steps 9 to 12; 3.5", None, ["ic 3.4", "ic 3.5"]),
    ],
)
def test_citations_are_distinguished_from_other_numbers(text: str, protocol: str | None, expected: list[str]) -> None:
    assert [f"{found.protocol} {found.section}" for found in citations(text, protocol)] == expected


def test_citation_of_a_missing_section_is_reported_with_its_line() -> None:
    source = '"""Route messages (3.6)."""\n\n# The order is that of\n# X-99.\nvalue = 1\n'
    path = Path("src/causeway/protocols/ic/routing.py")
    assert list(problems_of(path, source, texts_of(source))) == [f"{path}:4: X-99 is not in docs/reference/ic.md"]
