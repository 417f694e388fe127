"""The aggregator: group versions that other API servers answer (upstream's ``kube-aggregator/pkg/apiserver``).

``apiservices.py`` is what this worker knows of the stored APIServices, ``transport.py`` how a backend and this server prove who they
are, ``proxy.py`` the way of a request to a backend, ``discovery.py`` and ``openapi.py`` what
backends say they serve, ``aggregator.py`` all of it together. Whether a backend is available is found out by the worker that leads
(``kas.controllers.availability``); every worker goes by the stored condition.
"""
