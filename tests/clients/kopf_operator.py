"""An operator as one writes it with kopf: it says in each ConfigMap labelled `operated` what it saw happen. Run with ``kopf run``."""

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
    """Leaves a trace in a file, for the object goes: the finalizer that kopf added holds it only until this ran."""
    with open(os.environ["TRACE"], "a") as trace:
        trace.write(f"{name} gone\n")
