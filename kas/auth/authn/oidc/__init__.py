"""OpenID Connect: users authenticated by JSON Web Tokens of other issuers (``plugin/pkg/authenticator/token/oidc``), configured by the
flags ``--oidc-*`` or an AuthenticationConfiguration.

- ``configuration`` reads either into a description of each issuer; ``validation`` validates it and compiles expressions.
- ``provider`` discovers the issuer's keys; ``keys`` fetches them and verifies signatures.
- ``tokens`` checks the standard claims; ``mapping`` builds a user from the others.
- ``authenticator`` is the token authenticator; ``reload`` follows the file.
"""
