"""The functions that expressions may call: CEL's own and those Kubernetes adds, each module a library."""
