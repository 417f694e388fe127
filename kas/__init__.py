"""kas: a Kubernetes API server in Python."""

__version__ = "0.1.0"
KUBERNETES_VERSION = "1.36.2"
