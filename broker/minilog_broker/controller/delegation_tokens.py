"""Delegation tokens: the controller makes, renews, expires, describes and removes them (Kafka's KIP-48).

    issued ──renew──► expiry: now + period, at most max_timestamp   by its owner or a renewer, until it is expired
           ──expire─► expiry: now + period; or removed at once      by them, or by a user that may alter the cluster
           ──time───► invalid at its expiry, by the clock of each broker; removed here from time to time

The deletion of a user deletes its tokens (security.py). The caller draws the secret of a token, and only its verifiers
come here, so no metadata log has it. Calls name a token by its id, where Kafka names it by its secret.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from minilog.errors import (
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    InvalidArgument,
    InvalidPrincipal,
)
from minilog.limits import MAX_RENEWERS
from minilog.security.scram import ScramCredential
from minilog.v1 import records_pb2, security_pb2
from minilog_broker.controller.ledger import Ledger
from minilog_broker.controller.security_records import token_record, token_removal, token_to_wire
from minilog_broker.levels import SECURITY_LEVEL, check_reached
from minilog_broker.printable import shortened
from minilog_broker.security.delegation_token import IssuedToken
from minilog_broker.security.principal import EVERYBODY, user_of

# Every broker has all of them in memory and in each snapshot: some 700 bytes each, and the renewers.
MAX_TOKENS = 10_000
MAX_TOKENS_OF_OWNER = 1_000

MAX_REMOVALS = 1_000  # one decision is one batch; the next round removes the rest soon
SOON_MS = 1_000.0
MAX_PERIOD_MS = 2**53  # far above any life, and far below the end of int64


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """The part of a broker's configuration for tokens. The controller's counts. The defaults are Kafka's."""

    max_lifetime_ms: int = 604_800_000
    expiry_time_ms: int = 86_400_000
    expiry_check_interval_ms: float = 3_600_000


@dataclass(frozen=True, slots=True)
class NewToken:
    """A request for a token. `credentials`: the verifiers of the secret that was drawn for it."""

    token_id: str
    owner: str
    credentials: tuple[ScramCredential, ...]
    renewers: tuple[str, ...] = ()
    max_lifetime_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Requester:
    """The caller of a request about existing tokens. `may_all`: also about tokens of others."""

    principal: str
    may_all: bool = False


class DelegationTokens:
    """The controller's part that makes, renews, expires and removes delegation tokens.

    `wall_ms`: now, since 1970. A call that raises has changed nothing.
    """

    def __init__(self, ledger: Ledger, settings: TokenSettings, now_ms: float) -> None:
        self._ledger = ledger
        self._settings = settings
        self.next_tick_ms = now_ms + settings.expiry_check_interval_ms

    def reconfigured(self, settings: TokenSettings, now_ms: float) -> None:
        """Make and renew tokens by these settings from now on."""
        if settings.expiry_check_interval_ms != self._settings.expiry_check_interval_ms:
            self.next_tick_ms = now_ms + settings.expiry_check_interval_ms
        self._settings = settings

    def create(self, wanted: NewToken, wall_ms: int) -> security_pb2.CreateDelegationTokenResponse:
        self._check_level()
        renewers = _checked_renewers(wanted.renewers)
        life_ms = self._settings.max_lifetime_ms
        if wanted.max_lifetime_ms is not None:
            life_ms = min(life_ms, _checked_period(wanted.max_lifetime_ms, "a maximal lifetime"))
        expired = self._expired(wall_ms)
        self._check_counts(wanted.owner, expired)
        token = IssuedToken(
            token_id=wanted.token_id,
            owner=wanted.owner,
            renewers=renewers,
            issue_timestamp_ms=wall_ms,
            expiry_timestamp_ms=wall_ms + min(life_ms, self._settings.expiry_time_ms),
            max_timestamp_ms=wall_ms + life_ms,
            credentials={credential.mechanism: credential for credential in wanted.credentials},
        )
        self._remove(expired)
        self._ledger.write(token_record(token))
        return security_pb2.CreateDelegationTokenResponse(token=token_to_wire(token))

    def renew(
        self, request: security_pb2.RenewDelegationTokenRequest, requester: Requester, wall_ms: int
    ) -> security_pb2.RenewDelegationTokenResponse:
        period_ms = self._settings.expiry_time_ms
        if request.HasField("renew_period_ms"):
            period_ms = _checked_period(request.renew_period_ms, "a renewal's period")
        token = self._token(request.token_id, requester)
        _check_lives(token, wall_ms)
        return security_pb2.RenewDelegationTokenResponse(expiry_timestamp_ms=self._moved(token, wall_ms + period_ms))

    def expire(
        self, request: security_pb2.ExpireDelegationTokenRequest, requester: Requester, wall_ms: int
    ) -> security_pb2.ExpireDelegationTokenResponse:
        token = self._token(request.token_id, requester)
        if not request.HasField("expiry_period_ms") or request.expiry_period_ms < 0:
            self._remove([token])
            return security_pb2.ExpireDelegationTokenResponse(expiry_timestamp_ms=wall_ms)
        period_ms = _checked_period(request.expiry_period_ms, "a period", least=0)
        _check_lives(token, wall_ms)
        return security_pb2.ExpireDelegationTokenResponse(expiry_timestamp_ms=self._moved(token, wall_ms + period_ms))

    def describe(
        self, request: security_pb2.DescribeDelegationTokensRequest, requester: Requester, wall_ms: int
    ) -> security_pb2.DescribeDelegationTokensResponse:
        """The live tokens of the owners in the request. Of other owners' tokens, only those that the requester may
        know."""
        tokens = [
            token
            for token in self._ledger.image.tokens.values()
            if not token.is_expired(wall_ms)
            and (not request.owners or token.owner in request.owners)
            and (requester.may_all or token.may_be_renewed_by(requester.principal))
        ]
        tokens.sort(key=lambda token: (token.owner, token.issue_timestamp_ms, token.token_id))
        return security_pb2.DescribeDelegationTokensResponse(tokens=map(token_to_wire, tokens))

    def tick(self, now_ms: float, wall_ms: int) -> None:
        """Remove expired tokens where it is time, a bounded number at once."""
        if now_ms < self.next_tick_ms:
            return
        expired = self._expired(wall_ms)
        self._remove(expired)
        is_over = len(expired) < MAX_REMOVALS
        self.next_tick_ms = now_ms + (self._settings.expiry_check_interval_ms if is_over else SOON_MS)

    # -- all of them

    def _check_level(self) -> None:
        check_reached(self._ledger.image.level, SECURITY_LEVEL, "there are no delegation tokens yet: they came")

    def _check_counts(self, owner: str, expired: Iterable[IssuedToken]) -> None:
        """Raises InvalidArgument where there are too many tokens. Expired ones, which go with this decision, do not
        count."""
        tokens = self._ledger.image.tokens
        gone = {token.token_id for token in expired}
        if len(tokens) - len(gone) >= MAX_TOKENS:
            raise InvalidArgument(f"the cluster has {MAX_TOKENS} delegation tokens, which is the limit: expire some")
        own = sum(token.owner == owner and token.token_id not in gone for token in tokens.values())
        if own >= MAX_TOKENS_OF_OWNER:
            raise InvalidArgument(
                f"{owner} has {MAX_TOKENS_OF_OWNER} delegation tokens, which is the limit of one owner: expire some"
            )

    def _token(self, token_id: str, requester: Requester) -> IssuedToken:
        """The token of an id, for a requester that may know it.

        Raises LevelNotReached, DelegationTokenNotFound, DelegationTokenOwnerMismatch. The last is for the audit log:
        the client gets DelegationTokenNotFound instead.
        """
        self._check_level()
        token = self._ledger.image.tokens.get(token_id)
        if token is None:
            raise no_such_token(token_id)
        if not requester.may_all and not token.may_be_renewed_by(requester.principal):
            raise DelegationTokenOwnerMismatch(
                f"{requester.principal} neither owns nor may renew the delegation token {token_id!r}: ask its owner"
            )
        return token

    def _moved(self, token: IssuedToken, expiry_ms: int) -> int:
        moved = replace(token, expiry_timestamp_ms=min(token.max_timestamp_ms, expiry_ms))
        if moved != token:
            self._ledger.write(token_record(moved))
        return moved.expiry_timestamp_ms

    def _expired(self, wall_ms: int) -> list[IssuedToken]:
        tokens = self._ledger.image.tokens.values()
        return list(itertools.islice((token for token in tokens if token.is_expired(wall_ms)), MAX_REMOVALS))

    def _remove(self, tokens: Iterable[IssuedToken]) -> None:
        for token in tokens:
            self._ledger.write(token_removal(token.token_id))


def no_such_token(token_id: str) -> DelegationTokenNotFound:
    """The error for a token that does not exist, or that the caller may not know."""
    return DelegationTokenNotFound(
        f"you neither own nor may renew a delegation token with the id {shortened(token_id)!r}: see "
        "`minilog token list`"
    )


def removals_of(tokens: Mapping[str, IssuedToken], owner: str) -> Iterator[records_pb2.MetadataRecord]:
    """The records that remove all tokens of an owner."""
    return (token_removal(token.token_id) for token in list(tokens.values()) if token.owner == owner)


def _check_lives(token: IssuedToken, wall_ms: int) -> None:
    if token.is_expired(wall_ms):
        raise DelegationTokenExpired(f"the delegation token {token.token_id!r} is expired: create another one")


def _checked_period(period_ms: int, what: str, least: int = 1) -> int:
    if not least <= period_ms <= MAX_PERIOD_MS:
        raise InvalidArgument(f"{what} cannot have {period_ms} ms: give {least} to {MAX_PERIOD_MS}")
    return period_ms


def _checked_renewers(renewers: tuple[str, ...]) -> tuple[str, ...]:
    """The renewers in order, each once. Raises InvalidPrincipal, InvalidArgument."""
    if len(renewers) > MAX_RENEWERS:
        raise InvalidArgument(f"a token cannot have {len(renewers)} renewers: give at most {MAX_RENEWERS}")
    for renewer in renewers:
        if user_of(renewer).name == EVERYBODY:
            raise InvalidPrincipal("User:* cannot renew a token: name one user")
    return tuple(sorted(set(renewers)))
