"""The Pod Security Standards: which pods a level allows in a version (``k8s.io/pod-security-admission``)."""
