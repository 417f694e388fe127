"""The aggregator: group versions that other API servers serve (upstream's ``kube-aggregator/pkg/apiserver``).

- ``apiservices.py``: the worker's cache of the stored APIServices.
- ``transport.py``: mutual authentication with a backend.
- ``proxy.py``: forwarding of requests to a backend.
- ``discovery.py`` and ``openapi.py``: what backends serve.
- ``aggregator.py``: the whole.

The leading worker checks whether backends are available (``kas.controllers.availability``); every worker uses the stored condition.
"""
