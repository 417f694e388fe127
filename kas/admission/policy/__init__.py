"""Admission policies: ValidatingAdmissionPolicy and MutatingAdmissionPolicy (upstream ``pkg/admission/plugin/policy``).

``compiled`` is what the configured objects become, ``policies`` follows them and says which are about a request, with which parameters
(``params``), ``validating`` and ``mutating`` evaluate one. The plug-ins are in ``kas/admission/plugins``.
"""
