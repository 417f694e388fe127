"""Writes printers.json: the columns of server-side printing. Run by tables.py.

The facts in printers.json name each kind's columns. Their descriptions and formats come from recorded Table answers (table.jsonl.gz,
http.jsonl.gz) and, for kinds without a recorded answer, from EXTRA below (texts of the public API reference).

Form: {"descriptions": [text], "kinds": {"group/Kind": [[name, type, format, priority, description index]]}, "default": [columns of other
kinds], "unprinted": ["group/Kind" whose own columns are not used by their resource]}
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

EXTRA = {
    "/ComponentStatus": {
        "Status": "Status of the component conditions",
        "Message": "Message of the component conditions",
        "Error": "Error of the component conditions",
    },
    "admissionregistration.k8s.io/MutatingWebhookConfiguration": {
        "Webhooks": "Webhooks indicates the number of webhooks registered in this configuration",
    },
    "autoscaling/Scale": {
        "Desired": "replicas is the desired number of instances for the scaled object.",
        "Available": "replicas is the actual number of observed instances of the scaled object.",
    },
    "certificates.k8s.io/PodCertificateRequest": {
        "PodName": "podName is the name of the pod into which the certificate will be mounted.",
        "ServiceAccountName": "serviceAccountName is the name of the service account the pod is running as.",
        "NodeName": "nodeName is the name of the node the pod is assigned to.",
        "SignerName": "signerName indicates the requested signer.\n\nAll signer names beginning with `kubernetes.io` are reserved for use "
        "by the Kubernetes project.  There is currently one well-known signer documented by the Kubernetes project, "
        "`kubernetes.io/kube-apiserver-client-pod`, which will issue client certificates understood by kube-apiserver.  It is "
        "currently unimplemented.",
        "State": "Is the request Pending, Issued, Denied, or Failed?",
        "UnverifiedUserAnnotations": "unverifiedUserAnnotations allow pod authors to pass additional information to the signer "
        "implementation.  Kubernetes does not restrict or validate this metadata in any way.\n\nEntries are subject to the same "
        "validation as object metadata annotations, with the addition that all keys must be domain-prefixed. No restrictions are "
        "placed on values, except an overall size limitation on the entire field.\n\nSigners should document the keys and values "
        "they support.  Signers should deny requests that contain keys they do not recognize.",
    },
    "meta/Status": {
        "Status": "Status of the operation. One of: \"Success\" or \"Failure\". More info: "
        "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status",
        "Reason": "A machine-readable description of why this operation is in the \"Failure\" status. If this value is empty "
        "there is no information available. A Reason clarifies an HTTP status code but does not override it.",
        "Message": "",  # upstream looks up the description of a field under a misspelt name
    },
}  # fmt: skip


def lines(path: Path) -> Iterator[dict]:
    with gzip.open(path, "rt", encoding="utf-8") as f:
        yield from map(json.loads, f)


def recorded(answers: Path, kinds: dict[tuple[str, str, str], str]) -> Iterator[tuple[str, list[dict]]]:
    """Yields the kind and columns of every recorded Table."""
    for v in lines(answers / "table.jsonl.gz"):
        group_version, _, resource = v["in"]["resource"].rpartition("/")
        group, _, version = group_version.rpartition("/")
        if v["out"].get("columnDefinitions"):
            yield f"{group}/{kinds[group, version, resource]}", v["out"]["columnDefinitions"]
    for v in lines(answers / "http.jsonl.gz"):
        for step, answer in zip(v["in"]["steps"], v["out"], strict=False):
            body = answer.get("body")
            if isinstance(body, dict) and body.get("kind") == "Table":
                parts = step["path"].partition("?")[0].split("/")[1:]
                group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
                resource = rest[2] if rest[0] == "namespaces" and len(rest) > 2 else rest[0]
                if (group, version, resource) in kinds and body.get("columnDefinitions"):
                    yield f"{group}/{kinds[group, version, resource]}", body["columnDefinitions"]


def main(facts: Path, answers: Path, out: Path) -> None:
    """Writes the table ``out`` from directories of facts and recorded answers."""
    kinds = {(r["group"], r["version"], r["resource"]): r["kind"] for r in json.loads((facts / "resources.json").read_text())["resources"]}
    seen: dict[str, list[dict]] = {}
    default: list[dict] = []
    for name, columns in recorded(answers, kinds):
        if [c["name"] for c in columns] == ["Name", "Created At"]:
            default = columns
        else:
            seen.setdefault(name, columns)
    common = {c["name"]: c["description"] for c in seen["/Pod"] if c["name"] in ("Name", "Age")}

    texts: dict[str, int] = {}

    def row(column: dict) -> list:
        text = column["description"]
        return [column["name"], column["type"], column.get("format", ""), column["priority"], texts.setdefault(text, len(texts))]

    rows: dict[str, list] = {}
    unprinted = []
    for record in json.loads((facts / "printers.json").read_text())["kinds"]:
        for group in record["groups"]:
            name = f"{group}/{record['kind']}"
            if record.get("default"):
                unprinted.append(name)
            if group == "*" or (record.get("default") and name not in seen):
                continue
            columns = seen.get(name)
            if columns is None:
                columns = [c | {"description": (EXTRA.get(name, {}) | common).get(c["name"], "")} for c in record["columns"]]
            rows[name] = [row(c) for c in columns]
    made = {"kinds": rows, "default": [row(c) for c in default], "unprinted": sorted(unprinted), "descriptions": list(texts)}
    out.write_text(json.dumps(made, separators=(",", ":")) + "\n")
