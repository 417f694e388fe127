"""Rows of Tables of custom resources: many columns, and columns whose paths multiply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.hostile.attacker import CRDS, JSON, Attacker, definition
from tests.hostile.rows import row
from tests.hostile.rows_definitions import nested

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def columns(name: str, *paths: str, spec: Callable[[], Any]) -> None:
    """An attack that requests Tables of some objects: each alone, listed and watched."""

    @row(f"columns: {name}", 200, 201)
    def _(a: Attacker) -> None:
        plural = "c" + "".join(c for c in name if c.isalpha())
        crd = definition(plural, {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
        shown = [{"name": f"c{i}", "type": "string", "jsonPath": path} for i, path in enumerate(paths)]
        crd["spec"]["versions"][0]["additionalPrinterColumns"] = shown
        a.ask("POST", CRDS, crd)
        a.cleaned.append(lambda: a.ask("DELETE", f"{CRDS}/{plural}.rows.example.com"))
        path = f"/apis/rows.example.com/v1/namespaces/{a.room}/{plural}"
        while a.ask("GET", path) == 404:
            a.codes.pop()
        a.many((("POST", path, {**a.custom(plural, spec()), "metadata": {"name": f"o{i}"}}) for i in range(4)), 2)
        asks = [path, f"{path}/o1", f"{path}?watch=true&timeoutSeconds=1"] * 3
        a.many((("GET", one, None, JSON) for one in asks), 3)
        for one in asks:
            a.ask("GET", one, Accept=TABLE)


columns("ten times all that is below", *["..a" * 10] * 20, spec=lambda: nested(30))
columns("unions of unions", *[".spec" + "['a','a']" * 40] * 20, spec=lambda: nested(20))
columns("a thousand of lists", *[".spec.l[*].a"] * 1000, spec=lambda: {"l": [{"a": str(i)} for i in range(1000)]})
columns("a thousand of everything", *["."] * 1000, spec=lambda: {"t": "x" * 200_000})
