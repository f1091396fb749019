"""The end of a certificate, read without a library for certificates."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from minilog.security.certificate_end import certificate_end
from minilog_broker.security.certificates import (
    CURVE,
    Signing,
    authority_certificate,
    certificate_pem,
    key_pem,
)

DAY = datetime.timedelta(days=1)


@pytest.mark.parametrize("days", [1, 365, 3_650])
def test_the_end_of_a_certificate_is_that_of_a_library(days: int) -> None:
    """From 2050 on the form of the time is another one."""
    key = ec.generate_private_key(CURVE())
    signing = Signing(
        x509.random_serial_number(), datetime.datetime(2046, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), days * DAY
    )
    certificate = authority_certificate(key, signing)
    pem = certificate_pem(certificate)
    assert certificate_end(key_pem(key) + pem + pem) == certificate.not_valid_after_utc


@pytest.mark.parametrize("cut", range(0, 400, 7))
def test_bytes_that_are_no_certificate_have_no_end_and_raise_nothing(cut: int) -> None:
    pem = certificate_pem(
        authority_certificate(ec.generate_private_key(CURVE()), Signing(1, datetime.datetime.now(datetime.UTC), DAY))
    )
    broken = pem[:cut] + pem[cut + 40 :]
    assert certificate_end(broken) is None or isinstance(certificate_end(broken), datetime.datetime)
    assert certificate_end(b"") is None
