"""Conversations that go on when what was written has taken effect, however long that takes, not after the seconds that were recorded."""

from __future__ import annotations

import copy
import json
import time

from tests.clients.conversation import Answer, Connection, Conversation, Step, diff

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ACCEPTED_S = 60


def accepted(connection: Connection, answer: bytes) -> None:
    """Waits until the names of a definition that was written are accepted: how long that takes is nothing a conversation tells."""
    name = json.loads(answer)["metadata"]["name"]
    until = time.monotonic() + ACCEPTED_S
    while time.monotonic() < until:
        status, _, data = connection.request("GET", f"{DEFINITIONS}/{name}", None, dict(connection.authorization))
        if status != 200:
            return
        found = json.loads(data)
        conditions = {c["type"]: c["status"] for c in found["status"].get("conditions") or ()}
        accepted = found["status"]["acceptedNames"] == found["spec"]["names"]
        if conditions.get("NamesAccepted") == "False" or (accepted and "NamesAccepted" in conditions):
            return
        time.sleep(0.05)
    raise AssertionError(f"{name} was not accepted within {ACCEPTED_S} s")


class Patient(Conversation):
    """Goes on after a write of a definition when that has taken effect, and after a read that waits (``wait``), or one of a definition,
    whose status a controller writes, when it is as recorded. What is written then counts at once."""

    def reach(self, step: Step, wanted: Answer) -> Answer:
        """Of such a read the first answer that is ``wanted``, or the last within the time for it."""
        if "wait" not in step and not step["path"].startswith(DEFINITIONS):
            return self.play(step)
        step = {key: value for key, value in step.items() if key != "wait"}
        until = time.monotonic() + ACCEPTED_S
        while True:
            before = copy.deepcopy(self.aliases)
            answer = self.play(step)
            if step["method"] != "GET" or not diff(wanted, answer) or time.monotonic() > until:
                return answer
            self.aliases = before  # what came too early is not named
            time.sleep(0.05)

    def _ask(self, step, path, body, headers):
        status, found, data = super()._ask(step, path, body, headers)
        if step["method"] in ("POST", "PUT", "PATCH") and path.startswith(DEFINITIONS) and "/status" not in path and status in (200, 201):
            accepted(self.connection, data)
        return status, found, data
