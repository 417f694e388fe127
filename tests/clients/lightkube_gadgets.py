"""A controller of custom resources, written with lightkube as usual: it creates a ConfigMap for each Gadget, and sets its status.

It lists, and watches from there; it starts a new watch when one ends or expires. Run with the namespace as its argument.
"""

from __future__ import annotations

import sys
import time

from lightkube import ApiError, Client, KubeConfig
from lightkube.core.generic_client import httpx  # the name differs between versions
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.core_v1 import ConfigMap

Gadget = create_namespaced_resource("operators.example.com", "v1", "Gadget", "gadgets")


def reconcile(client: Client, gadget) -> None:
    meta, word = gadget.metadata, gadget.spec["word"]
    owner = OwnerReference("operators.example.com/v1", "Gadget", meta.name, meta.uid, controller=True, blockOwnerDeletion=True)
    client.apply(ConfigMap(metadata=ObjectMeta(name=meta.name, ownerReferences=[owner]), data={"word": word}), force=True)
    status = {"seen": word, "observedGeneration": meta.generation}
    applied = Gadget(apiVersion="operators.example.com/v1", kind="Gadget", metadata=ObjectMeta(name=meta.name), status=status)
    client.apply(Gadget.Status.from_dict(applied.to_dict()), force=True)


def main(namespace: str) -> None:
    client = Client(config=KubeConfig.from_env(), namespace=namespace, field_manager="gadgets")
    while True:
        try:
            for gadget in (found := client.list(Gadget)):
                reconcile(client, gadget)
            for kind, gadget in client.watch(Gadget, resource_version=found.resourceVersion):
                if kind in ("ADDED", "MODIFIED") and not gadget.metadata.deletionTimestamp:
                    reconcile(client, gadget)
        except (ApiError, httpx.HTTPError) as e:  # it was deleted, another writer was faster, or the server is down
            print(repr(e), flush=True)
            time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1])
