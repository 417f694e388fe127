"""An operator of custom resources, written with kopf as usual; it writes what it saw into their status. Run with ``kopf run``."""

from __future__ import annotations

import os

import kopf

GADGETS = ("operators.example.com", "v1", "gadgets")


@kopf.on.create(*GADGETS)
def created(spec, patch, **_):
    patch.status["seen"] = f"created with {spec['word']}"


@kopf.on.update(*GADGETS, field="spec.word")
def changed(old, new, patch, **_):
    patch.status["seen"] = f"{old} became {new}"


@kopf.on.resume(*GADGETS)
def resumed(name, **_):
    trace(f"{name} resumed")


@kopf.on.delete(*GADGETS)
def deleted(name, **_):
    trace(f"{name} gone")


def trace(text: str) -> None:
    with open(os.environ["TRACE"], "a") as out:
        out.write(text + "\n")
