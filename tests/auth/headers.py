"""Request headers for authenticators."""


def headers(**given):
    """Returns a request's ``get`` for these headers."""
    return {k.replace("_", "-"): v for k, v in given.items()}.get
