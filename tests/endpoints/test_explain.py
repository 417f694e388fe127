"""Descriptions of types and fields, as ``kubectl explain`` shows them: none is missing, and each is informative."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kas.endpoints.openapi import OpenAPI, builtin, custom, schemas
from kas.types.scheme import BUILTIN

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="module")
def published() -> dict[str, Any]:
    """Returns the schemas of all v3 documents, including those of versions that are off by default."""
    server = OpenAPI([builtin(r) for r in BUILTIN.resources], "v1.36.2")
    out: dict[str, Any] = {}
    for path in server.paths:
        found = server.v3(path)
        assert found is not None
        out |= json.loads(found.body)["components"]["schemas"]
    return out


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gen_openapi", TOOLS / "gen_openapi.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def described(definitions: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yields every type and field: the type's name, "." or the field's name, and its schema."""
    for name, schema in definitions.items():
        yield name, ".", schema
        for field, found in schema.get("properties", {}).items():
            yield name, field, found


def words(text: str) -> set[str]:
    """Returns the words of a text or a CamelCase name, without a plural's s."""
    return {word.lower().rstrip("s") for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", text)}


FILLERS = words("a an as at be by for from in is it its of on one or that the this to was which with")


def test_every_published_type_and_field_has_a_description(published):
    places = list(described(published))
    assert len(published) > 700 and len(places) > 3500
    assert [f"{name} {field}" for name, field, schema in places if not schema.get("description")] == []


def test_every_unpublished_type_and_field_has_a_description():
    assert [f"{name} {field}" for name, field, schema in described(schemas.definitions()) if not schema.get("description")] == []


def test_descriptions_are_sentences(published):
    bad = [
        f"{name} {field}: {schema['description']}"
        for name, field, schema in described(published)
        if not re.fullmatch(r"\S(?:(?!  ).)*\.", schema["description"]) or not 15 <= len(schema["description"]) <= 320
    ]
    assert bad == []


def test_descriptions_say_more_than_the_names(published):
    """A text that has only the words of its type and field explains nothing; lists are excepted."""
    empty = [
        f"{name} {field}: {schema['description']}"
        for name, field, schema in described(published)
        if not words(schema["description"]) - FILLERS - words(name.rpartition(".")[2]) - words(field)
        and not (field in (".", "items") and name.endswith("List"))
    ]
    assert empty == []


def test_fields_of_a_type_have_different_descriptions(published):
    doubled = []
    for name, schema in published.items():
        texts = [schema["description"], *(found["description"] for found in schema.get("properties", {}).values())]
        doubled += [f"{name}: {text}" for text in set(texts) if texts.count(text) > 1]
    assert doubled == []


def test_descriptions_are_those_of_the_text_files(generator):
    """No text is missing, none is unused, and the generator has run since the last change."""
    texts, definitions, stale = generator.Texts(TOOLS / "texts"), schemas.definitions(), []
    for name, field, schema in described(definitions):
        shared = ""
        if field in ("apiVersion", "kind", "metadata") and schemas.GVK in definitions[name]:
            shared = "metadata@list" if schema.get("$ref", "").endswith(".ListMeta") else field
        if texts.of(name, field, shared) != schema.get("description"):
            stale.append(f"{name} {field}")
    assert texts.faults() == []
    assert stale == []


def test_the_generator_reports_missing_and_unused_texts(generator, tmp_path):
    (tmp_path / "common.yaml").write_text("kind: Shared by kinds.\napiVersion: Asked for by nobody.\n")
    (tmp_path / "apps.yaml").write_text(
        """
        Thing:
          .: A thing.
          size: How big it is.
          gone: A field that is no more.
        Thing@v2:
          size: How big it is, in metres.
        """
    )
    texts = generator.Texts(tmp_path)
    assert texts.of("io.k8s.api.apps.v1.Thing") == "A thing."
    assert texts.of("io.k8s.api.apps.v1.Thing", "size") == "How big it is."
    assert texts.of("io.k8s.api.apps.v2.Thing", "size") == "How big it is, in metres."
    assert texts.of("io.k8s.api.apps.v1.Thing", "kind", "kind") == "Shared by kinds."
    assert texts.of("io.k8s.api.apps.v1.Thing", "colour") == ""
    assert texts.of("io.k8s.api.batch.v1.Thing") == ""
    assert texts.faults() == [
        "no text: io.k8s.api.apps.v1.Thing colour", "no text: io.k8s.api.batch.v1.Thing .",
        "text of nothing: apps.yaml: Thing gone", "text of nothing: common.yaml: apiVersion",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("io.k8s.api.core.v1.PodSpec", ("core", "PodSpec", "v1")),
        ("io.k8s.api.resource.v1beta2.Device", ("resource", "Device", "v1beta2")),
        ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps", ("apiextensions", "JSONSchemaProps", "v1")),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", ("meta", "ObjectMeta", "v1")),
        ("io.k8s.apimachinery.pkg.api.resource.Quantity", ("meta", "Quantity", "resource")),
    ],
)
def test_the_file_of_a_types_texts(generator, name, place):
    assert generator.Texts.place(name) == place


def test_custom_resources_have_descriptions_of_common_fields():
    version = {"name": "v1", "served": True, "schema": {"openAPIV3Schema": {"type": "object", "description": "A widget."}}}
    names = {"plural": "widgets", "kind": "Widget"}
    crd = {"spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}}
    _, definitions = custom.describe(crd)
    places = [(name, field) for name, field, schema in described(definitions) if schema.get("description")]
    assert places == [
        ("com.example.v1.Widget", field) for field in (".", "apiVersion", "kind", "metadata")
    ] + [("com.example.v1.WidgetList", field) for field in (".", "apiVersion", "kind", "items", "metadata")]  # fmt: skip
