"""The words of security.protocol and sasl.mechanism: Kafka's, without what sends a password in the clear."""

from __future__ import annotations

import enum


class SecurityProtocol(enum.Enum):
    """How a listener is spoken to."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    """TLS; a client may show a certificate, whose common name is its user's name."""
    SASL_SSL = "SASL_SSL"
    """TLS, and then a mechanism that tells who the client is."""


OAUTHBEARER = "OAUTHBEARER"
SCRAM_SHA_256, SCRAM_SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
MECHANISMS = (SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
MAX_CONTENT_BYTES = 16 << 10
"""Of one message of a mechanism: tokens are the longest."""
