"""Conversion by webhooks: what they are sent, and what of their answers is believed. The webhook is a TLS server on loopback."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from kas.apiextensions import definition as definitions
from kas.apiextensions.nopconverter import NOP
from kas.client.hooks import HookClients
from kas.client.kubeconfig import Users
from kas.endpoints.custom import webhookconverter
from kas.endpoints.custom.webhookconverter import WebhookConverter, converters
from kas.meta.errors import ApiError
from kas.store import build_record
from tests.admission.webhook.hook_server import HookServer, said
from tests.endpoints.customs import definition, version

V1, V2 = "example.com/v1", "example.com/v2"
TARGET = ("example.com", "v2", "Widget")
LEFT_OUT = object()
FOR = "conversion webhook for example.com/v1, Kind=Widget"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with HookServer(tmp_path_factory.mktemp("hook")) as running:
        yield running


@pytest.fixture
def hook(server):
    server.seen.clear()
    server.answers = answer
    return server


def obj(name: str = "a", api_version: str = V1, **spec) -> dict:
    return {"apiVersion": api_version, "kind": "Widget", "metadata": {"name": name, "uid": f"u-{name}", "generation": 3}, "spec": spec}


def answer(asked, change=lambda o: o, objects=lambda found: found, review=None, **response):
    """The review's answer: every object in the wanted version and as ``change`` leaves it."""
    request = asked["request"]
    found = objects([change({**o, "apiVersion": request["desiredAPIVersion"]}) for o in request["objects"]])
    response = {"uid": request["uid"], "convertedObjects": found, "result": {"status": "Success"}, **response}
    body = {"apiVersion": asked["body"]["apiVersion"], "kind": "ConversionReview", "response": response, **(review or {})}
    return said(json.dumps({k: v for k, v in body.items() if v is not LEFT_OUT}).encode())


def converter(hook, *versions: str) -> WebhookConverter:
    crd = definition("example.com", version("v1"), version("v2", storage=False))
    crd["metadata"]["uid"] = "u"
    crd["spec"]["conversion"] = {
        "strategy": "Webhook", "webhookClientConfig": hook.client(), "conversionReviewVersions": list(versions or ("v1",)),
    }  # fmt: skip
    record = build_record("/registry/x", json.dumps(crd).encode(), b"", 1)
    return WebhookConverter(replace(definitions.read(record, 1, 1)), HookClients(Users({}), None, 10))


def convert(made: WebhookConverter, *objects: dict) -> list[dict]:
    async def run():
        found = made.convert(objects, TARGET)
        return found if isinstance(found, list) else await found

    return asyncio.run(run())
