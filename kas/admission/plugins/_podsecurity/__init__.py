"""The Pod Security Standards: which pods a level of a version allows (``k8s.io/pod-security-admission``)."""
