"""The functions that expressions may call: CEL's own and those that Kubernetes adds; each module is a library."""
