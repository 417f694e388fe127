"""Many clients that change one object at the same time: patches and applies are merged, replaces of an old version are refused."""

from __future__ import annotations

import collections
import json
import threading

import pytest
import requests

pytestmark = pytest.mark.client
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
CLIENTS, ROUNDS = 8, 15


@pytest.fixture(scope="module")
def url(module_server):
    server = module_server("--unsafe-no-fsync", "--controllers=none", workers=2)

    def session() -> requests.Session:
        s = requests.Session()
        s.trust_env, s.verify, s.headers["Authorization"] = False, server.ca, f"Bearer {server.token}"
        return s

    return session, server.url + "/api/v1/namespaces/default/configmaps"


def together(session, work) -> collections.Counter:
    """Runs ``work(session, number)`` in every client at the same time; returns the number of responses by status."""
    answers, failures = collections.Counter(), []

    def run(number: int) -> None:
        try:
            for status in work(session(), number):
                answers[status] += 1
        except Exception as e:
            failures.append(e)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(CLIENTS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not failures
    return answers


def test_all_patches_succeed(url):
    """A patch without resourceVersion is computed again until it fits (GuaranteedUpdate); no client's change is lost."""
    session, path = url
    assert session().post(path, json={"metadata": {"name": "patched"}}).status_code == 201

    def work(s, number):
        for i in range(ROUNDS):
            body = json.dumps({"data": {f"k{number}-{i}": "v"}})
            yield s.patch(f"{path}/patched", data=body, headers={"Content-Type": MERGE}, timeout=60).status_code

    assert together(session, work) == {200: CLIENTS * ROUNDS}
    assert len(session().get(f"{path}/patched").json()["data"]) == CLIENTS * ROUNDS


def test_all_applies_succeed(url):
    """One of the appliers creates the object, the others change it."""
    session, path = url

    def work(s, number):
        for i in range(ROUNDS):
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"applied-{i}"}, "data": {f"k{number}": "v"}}
            to = f"{path}/applied-{i}?fieldManager=m{number}&force=true"
            yield s.patch(to, data=json.dumps(body), headers={"Content-Type": APPLY}, timeout=60).status_code

    assert together(session, work) == {201: ROUNDS, 200: (CLIENTS - 1) * ROUNDS}
    for i in range(ROUNDS):
        assert len(session().get(f"{path}/applied-{i}").json()["data"]) == CLIENTS


def test_replaces_of_an_old_version_are_refused(url):
    """With the resourceVersion that was read, a counter never loses a step: every 200 counts, the other responses are 409."""
    session, path = url
    assert session().post(path, json={"metadata": {"name": "counter"}, "data": {"n": "0"}}).status_code == 201

    def work(s, number):
        for _ in range(ROUNDS):
            obj = s.get(f"{path}/counter").json()
            obj["data"]["n"] = str(int(obj["data"]["n"]) + 1)
            yield s.put(f"{path}/counter", json=obj, timeout=60).status_code

    answers = together(session, work)
    assert set(answers) <= {200, 409} and sum(answers.values()) == CLIENTS * ROUNDS
    assert int(session().get(f"{path}/counter").json()["data"]["n"]) == answers[200]


def test_one_of_many_creates_of_a_name_succeeds(url):
    """Exactly one wins each name."""
    session, path = url

    def work(s, number):
        for i in range(ROUNDS):
            yield s.post(path, json={"metadata": {"name": f"raced-{i}"}}, timeout=60).status_code

    assert together(session, work) == {201: ROUNDS, 409: (CLIENTS - 1) * ROUNDS}
