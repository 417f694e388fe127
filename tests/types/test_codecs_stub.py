"""The type stub of the codecs is complete: kas/_codecs.pyi names everything that is compiled, and no more."""

import ast
import inspect
from pathlib import Path

import pytest

from kas import _codecs

STUB = ast.parse(Path(_codecs.__file__).with_name("_codecs.pyi").read_text())
DEFINED = {node.name: node for node in STUB.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
# Names for use inside the unit, and modules that it imports.
PRIVATE = {"base64", "json", "math", "struct", "sys", "threading", "KEPT_TOKENS"}


def test_names():
    there = {name for name in vars(_codecs) if not name.startswith("_")} - PRIVATE
    assert {"ENVELOPE_TAIL", *DEFINED} == there


@pytest.mark.parametrize("name", [name for name, node in DEFINED.items() if isinstance(node, ast.FunctionDef)])
def test_parameters(name):
    doc = inspect.signature(getattr(_codecs, name)) if _has_signature(name) else None
    if doc is None:
        pytest.skip("compiled without a signature")
    args = DEFINED[name].args
    assert list(doc.parameters) == [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)]


def _has_signature(name):
    try:
        inspect.signature(getattr(_codecs, name))
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("name", ["Field", "TypeDesc"])
def test_attributes(name):
    body = DEFINED[name].body
    said = {n.target.id for n in body if isinstance(n, ast.AnnAssign)} | {n.name for n in body if isinstance(n, ast.FunctionDef)}
    assert said == {attribute for attribute in vars(getattr(_codecs, name)) if not attribute.startswith("_")}
