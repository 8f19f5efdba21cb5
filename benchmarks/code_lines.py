"""Count the code lines of both distributions: ``python -m benchmarks.code_lines [DIRECTORY ...]``.

A code line holds at least one token of code. Blank lines, comments, docstrings and strings that stand alone as
documentation of an attribute do not count, and neither do generated modules (``*_pb2.py``).
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = tuple(path for path in (ROOT / "src", ROOT / "packages" / "causeway-proofs" / "src") if path.is_dir())

_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(source: str) -> int:
    """Count the code lines of one module.

    Args:
        source: Text of the module.

    Returns:
        Number of lines that hold code.
    """
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def main(directories: list[str]) -> None:
    """Print code lines and files by package, then the totals and the longest file."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    longest = (0, "")
    for root in map(Path, directories or map(str, SOURCES)):
        for path in sorted(root.rglob("*.py")):
            if path.name.endswith("_pb2.py"):
                continue
            source = path.read_text()
            package = ".".join(path.relative_to(root).parts[:2]).removesuffix(".py")
            lines[package] += code_lines(source)
            files[package] += 1
            longest = max(longest, (source.count("\n"), str(path.relative_to(root))))
    for package in sorted(lines):
        print(f"{lines[package]:8,} lines {files[package]:5,} files  {package}")
    print(f"{lines.total():8,} lines {files.total():5,} files  in all")
    print(f"longest file: {longest[1]}, {longest[0]} lines of text")


if __name__ == "__main__":
    main(sys.argv[1:])
