"""OpenID Connect: users by JSON Web Tokens of other issuers (``plugin/pkg/authenticator/token/oidc``), from the flags ``--oidc-*`` or an
AuthenticationConfiguration.

``configuration`` reads either into a description of each issuer, ``validation`` says what is wrong with one and compiles expressions,
``provider`` asks the issuer for its keys, ``keys`` checks signatures, ``tokens`` the claims every token has, ``mapping`` makes a user of
the rest, ``authenticator`` is what the union asks, and ``reload`` follows the file.
"""
