"""Definitions of well-known projects with kubectl: installed by server-side apply, explained, used, printed and deleted."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests import prerequisites
from tests.clients.kubectl import Kubectl, table
from tests.vectors import files

pytestmark = pytest.mark.client

# The largest ones of three projects; the fields to explain of each, with a word of the output; the columns it prints.
DEFINITIONS = {
    "certificates.cert-manager.io": ("spec.issuerRef.name", "<string>", ["NAME", "READY", "SECRET", "AGE"]),
    "applications.argoproj.io": ("spec.source.helm.valueFiles", "<[]string>", ["NAME", "SYNC STATUS", "HEALTH STATUS"]),
    "gateways.gateway.networking.k8s.io": ("spec.listeners.port", "<integer>", ["NAME", "CLASS", "ADDRESS", "PROGRAMMED", "AGE"]),
}


def real() -> dict[str, dict[str, Any]]:
    """The recorded definitions by name."""
    found = {row["id"].partition("/")[2]: row for row in files.lines("crds-real")}
    if not found:
        prerequisites.give_up(f"no recorded definitions in {files.DIRECTORY}")
    return {name: found[name] for name in DEFINITIONS}


def samples(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The sample objects of a definition that the reference accepted, without their namespaces."""
    for sample in row["samples"]:
        if sample["out"]["status"] == 201:
            obj = json.loads(json.dumps(sample["in"]))
            obj["metadata"].pop("namespace", None)
            yield obj


@pytest.mark.parametrize("name", list(DEFINITIONS))
def test_a_definition_of_a_project(k: Kubectl, name: str):
    row = real()[name]
    crd, manager = json.dumps(row["crd"]), "--field-manager=" + uuid.uuid4().hex[:8]
    plural, _, group = name.partition(".")
    path, type_, columns = DEFINITIONS[name]
    k("apply", "--server-side", manager, "-f", "-", stdin=crd)
    try:
        k("wait", "--for=condition=Established", f"crd/{name}", "--timeout=60s", timeout=90)
        assert k.out("apply", "--server-side", manager, "-f", "-", stdin=crd).endswith("serverside-applied\n")
        k.until(lambda: name in k.out("api-resources", "--api-group", group, "-o", "name").split(), 60)
        # The OpenAPI documents are updated a moment later.
        k.until(lambda: type_ in k("explain", f"{plural}.{path}", code=None).stdout, 60)
        use(k, name, list(samples(row))[:4], columns)
    finally:
        k("delete", "crd", name, "--timeout=60s", timeout=90)
    k.until(lambda: "the server doesn't have a resource type" in k("get", name, code=None).stderr, 60)


def use(k: Kubectl, name: str, objects: list[dict[str, Any]], columns: list[str]) -> None:
    """Applies objects both ways, shows, labels, patches and deletes them."""
    first, *more = objects
    names = [obj["metadata"]["name"] for obj in objects]
    k("apply", "-f", "-", stdin=json.dumps(first))
    assert k.out("diff", "-f", "-", stdin=json.dumps(first)) == ""
    k("apply", "--server-side", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": more}))
    printed = table(k.out("get", name))
    assert printed[0] == columns and [r[0] for r in printed[1:]] == sorted(names)
    shown = k.get(name, names[0])
    assert shown["kind"] == first["kind"] and shown["spec"].keys() >= first["spec"].keys()
    assert f"Name:         {names[0]}" in k.out("describe", name, names[0])
    k("label", name, names[0], "shown=yes")
    assert k.out("get", name, "-l", "shown=yes", "-o", "name").rpartition("/")[2].strip() == names[0]
    k("patch", name, names[0], "--type=merge", "-p", json.dumps({"metadata": {"annotations": {"a": "b"}}}))
    assert k.get(name, names[0])["metadata"]["annotations"]["a"] == "b"
    wrong = {**first, "metadata": {"name": "wrong"}, "spec": {**first["spec"], "nobodyKnowsThis": 1}}
    assert "nobodyKnowsThis" in k.error("create", "-f", "-", stdin=json.dumps(wrong))
    assert k.out("delete", name, names[0]).startswith(name.partition(".")[0].removesuffix("s"))
