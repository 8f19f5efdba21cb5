"""Small forms that lead to other pages: they ask by address, and change nothing."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from causeway.report.svg import element


def form(action: str, fields: Sequence[Markup], given: Mapping[str, str | None], button: str = "Go") -> Markup:
    """Return a form. ``fields``: what may be filled in; ``given``: what is asked with it, None is left out."""
    hidden = [_hidden(name, value) for name, value in given.items() if value is not None]
    return element("form", {"action": action}, [*hidden, *fields, element("button", {"type": "submit"}, button)])


def number_box(name: str, label: str, value: int | None = None) -> Markup:
    """Return a box for a whole number."""
    shown = Markup("") if value is None else Markup(' value="{}"').format(value)
    return Markup(
        '<input class="short" name="{}" inputmode="numeric" maxlength="20" autocomplete="off" aria-label="{}" '
        'placeholder="{}"{}>'
    ).format(name, label, label.lower(), shown)


def choice(name: str, label: str, words: Sequence[str], chosen: str | None) -> Markup:
    """Return a list of which one word is chosen."""
    options = [
        element("option", {"value": each, "selected": "selected" if each == chosen else None}, each) for each in words
    ]
    return element("select", {"name": name, "aria-label": label}, options)


def _hidden(name: str, value: str) -> Markup:
    """Return a value that is asked with a form, character for character; those that change how text is shown are
    written as numbers."""
    shown = Markup("").join(
        Markup(f"&#{ord(each)};") if unicodedata.category(each) in _UNSEEN and ord(each) not in _C1 else escape(each)
        for each in value
    )
    return Markup('<input type="hidden" name="{}" value="{}">').format(name, shown)


_UNSEEN = ("Cc", "Cf", "Zl", "Zp")
_C1 = range(0x80, 0xA0)  # numbers of these mean other characters in HTML

__all__ = ["choice", "form", "number_box"]
