"""When a certificate ends, read from its DER form (RFC 5280, its section 4.1). Pure.

A broker whose TLS refuses an ended certificate closes the connection, and its reason is often lost on the way. The
client has the certificate, and can look. Clients have no library for certificates, so this walks over the few fields
before the validity.
"""

from __future__ import annotations

import datetime
import ssl

_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17
_FORMATS = {_UTC_TIME: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"


def certificate_end(pem: bytes) -> datetime.datetime | None:
    """The time after which the first certificate in a PEM file does not count. None if it cannot be read."""
    start, end = pem.find(_BEGIN), pem.find(_END)
    try:
        der = ssl.PEM_cert_to_DER_cert(pem[start : end + len(_END)].decode("ascii"))
        fields = _content(_content(der)[1])[1]  # of the TBSCertificate
        if fields[0] == _VERSION:
            fields = _content(fields)[2]
        for _ in ("serial number", "signature", "issuer"):
            fields = _content(fields)[2]
        _, validity, _ = _content(fields)
        tag, text, _ = _content(_content(validity)[2])
        return datetime.datetime.strptime(text.decode("ascii"), _FORMATS[tag]).replace(tzinfo=datetime.UTC)
    except (ValueError, KeyError, IndexError):
        return None


def _content(der: bytes) -> tuple[int, bytes, bytes]:
    """The tag and the content of the first value, and what follows it. Raises IndexError, ValueError."""
    length, begin = der[1], 2
    if length >= 0x80:
        begin += length & 0x7F
        length = int.from_bytes(der[2:begin], "big")
    if begin + length > len(der):
        raise ValueError("the value is cut")
    return der[0], der[begin : begin + length], der[begin + length :]
