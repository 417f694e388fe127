"""An operator written with kopf as usual: it writes the changes that it saw into each ConfigMap labelled `operated`. Run with ``kopf
run``."""

from __future__ import annotations

import os

import kopf

OURS = {"operated": "yes"}


@kopf.on.create("configmaps", labels=OURS)
def created(body, patch, **_):
    patch.setdefault("data", {})["seen"] = "created with " + body["data"]["word"]


@kopf.on.update("configmaps", labels=OURS, field="data.word")
def changed(old, new, patch, **_):
    patch.setdefault("data", {})["seen"] = f"{old} became {new}"


@kopf.on.delete("configmaps", labels=OURS)
def deleted(name, **_):
    """Writes to a file, as the object is deleted: the finalizer that kopf added keeps it until this has run."""
    with open(os.environ["TRACE"], "a") as trace:
        trace.write(f"{name} gone\n")
