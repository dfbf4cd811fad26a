"""Lets the reference read docstrings as they are written here.

In `name : words` the words are a description, where NumPy's form has a type: the type is the signature's. An example
needs no heading of its own.
"""

import re
from typing import Any

import griffe

SECTION = re.compile(r"^(Parameters|Attributes)\n-+\n(.*?)(?=^\w[\w ]*\n-+$|\Z)", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"^(\*{0,2}\w[\w, *]*) : (.+)$", re.MULTILINE)
HEADING = "Examples\n--------"


def described(text: str) -> str:
    """A docstring with the words of its parameters on a line of their own, and a heading over its examples."""
    text = SECTION.sub(lambda section: ITEM.sub(r"\1\n    \2", section[0]), text)
    return text if HEADING in text else text.replace("\n\n>>> ", f"\n\n{HEADING}\n>>> ", 1)


class Words(griffe.Extension):
    def on_instance(self, *, obj: griffe.Object, **given: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = described(obj.docstring.value)
