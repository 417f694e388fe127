"""KMS plug-ins: values are sealed with keys that a plug-in behind a Unix socket has sealed (envelope encryption).

Upstream: ``apiserver/pkg/storage/value/encrypt/envelope`` and ``.../kmsv2``. gRPC comes with the extra ``kas[kms]``.
"""
