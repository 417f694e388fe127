"""KMS plug-ins: values are sealed with keys that a plug-in behind a Unix socket has encrypted (envelope encryption).

Upstream: ``apiserver/pkg/storage/value/encrypt/envelope`` and ``.../kmsv2``. gRPC requires the extra ``kas[kms]``.
"""
