"""Conversations that continue when a write has taken effect, however long that takes, and not after the recorded number of seconds."""

from __future__ import annotations

import copy
import json
import time

from tests.clients.conversation import Answer, Connection, Conversation, Step, diff

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ACCEPTED_S = 60


def accepted(connection: Connection, answer: bytes) -> None:
    """Waits until the names of a definition that was written are accepted: conversations do not specify how long that takes."""
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


class WaitingConversation(Conversation):
    """Continues after a write of a definition when it has taken effect, and after a read with ``wait``, or of a definition, whose status a
    controller writes, when the response is as recorded. So writes count at once."""

    def reach(self, step: Step, wanted: Answer) -> Answer:
        """The first response to such a read that is ``wanted``, or the last one before the deadline."""
        if "wait" not in step and not step["path"].startswith(DEFINITIONS):
            return self.play(step)
        step = {key: value for key, value in step.items() if key != "wait"}
        until = time.monotonic() + ACCEPTED_S
        while True:
            before = copy.deepcopy(self.aliases)
            answer = self.play(step)
            if step["method"] != "GET" or not diff(wanted, answer) or time.monotonic() > until:
                return answer
            self.aliases = before  # a response that came too early gets no alias
            time.sleep(0.05)

    def _ask(self, step, path, body, headers):
        status, found, data = super()._ask(step, path, body, headers)
        if step["method"] in ("POST", "PUT", "PATCH") and path.startswith(DEFINITIONS) and "/status" not in path and status in (200, 201):
            accepted(self.connection, data)
        return status, found, data
