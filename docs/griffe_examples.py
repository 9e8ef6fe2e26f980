"""Shows the examples of docstrings as code: where they say ``Example:``, griffe wants a plural."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the section in every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE
            )
