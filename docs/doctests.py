"""The examples in our docstrings (>>>) as blocks of code on the API page; Markdown would take them for quotations."""

from __future__ import annotations

from typing import Any

from griffe import Docstring, Extension, Object


class Doctests(Extension):
    """Fences every example of every docstring that is read."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Change the docstring of a module, class, function or attribute in place."""
        if obj.docstring is not None:
            obj.docstring = Docstring(fence_examples(obj.docstring.value), parent=obj)


def fence_examples(text: str) -> str:
    """Each paragraph that begins with >>> stands in a fence.

    >>> fence_examples("It adds.\\n\\n>>> 1 + 1\\n2").splitlines()
    ['It adds.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    paragraphs = text.split("\n\n")
    return "\n\n".join(f"```pycon\n{one}\n```" if one.lstrip().startswith(">>>") else one for one in paragraphs)
