"""The formats in which reviews and tokens are answered: they have no table columns."""

from __future__ import annotations

import pytest

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
REVIEWS = [
    ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/"}}}),
    ("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}),
    ("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}),
    ("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}}),
]


@pytest.mark.parametrize("path,body", REVIEWS, ids=[path.rpartition("/")[2] for path, _ in REVIEWS])
def test_a_review_cannot_be_a_table(client, path, body) -> None:
    code, answer = client("POST", path, body, Accept=TABLE)
    assert (code, answer["reason"]) == (406, "NotAcceptable")
    assert answer["message"].startswith("only the following media types are accepted: application/json")
    code, answer = client("POST", path, body, Accept=f"{TABLE},application/json")
    assert code == 201 and answer["kind"].endswith("Review")
    code, answer = client("POST", path, body, Accept=PARTIAL)
    assert (code, answer["kind"], set(answer)) == (201, "PartialObjectMetadata", {"kind", "apiVersion", "metadata"})


def test_a_refused_format_creates_no_token(client, namespace) -> None:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    assert client("POST", path, {"spec": {}}, Accept=TABLE)[0] == 406
    assert client("POST", path, {"spec": {}}, Accept=f"{TABLE},application/json")[1]["status"]["token"]
