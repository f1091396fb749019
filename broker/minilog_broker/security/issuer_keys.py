"""The keys that an issuer of tokens publishes: the times of their fetches, and the keys that count between fetches.

    waiting     a fetch is due at `due_ms`              `began`                 leads to fetching
    fetching    one is under way, and never a second    `fetched`, `failed`     lead to waiting

- A whole answer replaces all keys. A key that it lacks counts no more. After an answer without keys no token counts.
- A failed fetch, or an answer that is not a key set, changes nothing. The former keys stay in use, and the next fetch
  follows after a pause that doubles. Before the first answer there is no key, and every token is refused.
- A token that names an unknown key brings the next fetch forward, since its issuer may have changed its keys. Anybody
  can write such a token, so there is a pause before such an early fetch, too. The pause doubles with each early fetch
  that brings no other keys. It is short again after a fetch that brings some, and after a regular fetch.

The names are those of Kafka's sasl.oauthbearer.jwks.endpoint.* (KIP-768). In Kafka, each new kid causes a fetch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from minilog_broker.security.bearer import BearerSettings, BearerVerifier, InvalidBearerSettings

_REPORTED_AGAIN_MS = 600_000.0  # a failure that goes on has six lines an hour
_MOST_DOUBLINGS = 32


@dataclass(frozen=True, slots=True)
class FetchPauses:
    """The pauses between fetches. `refresh_ms`: from a fetch to the next. `backoff_ms`: the first pause after a fetch
    that failed or brought nothing new, doubled each time up to `backoff_max_ms`."""

    refresh_ms: float
    backoff_ms: float
    backoff_max_ms: float

    def pause_ms(self, former: int) -> float:
        """The pause after `former` pauses in a row."""
        return min(self.backoff_ms * 2.0 ** min(former, _MOST_DOUBLINGS), self.backoff_max_ms)


@dataclass(frozen=True, slots=True)
class Fetch:
    """The outcome of a fetch. `error`: the reason of a failure, else None. `is_news`: worth a line in the log.
    `have_changed`: other keys count now."""

    error: str | None
    is_news: bool
    have_changed: bool
    next_in_ms: float


class IssuerKeys:
    """The keys of one issuer, and the times of their fetches. Times are of one monotonic clock, in milliseconds."""

    def __init__(self, settings: BearerSettings, pauses: FetchPauses) -> None:
        self._settings = settings
        self._pauses = pauses
        self.verifier = BearerVerifier(settings, None)
        """The verifier with the keys that count now."""
        self.fetched_ms: float | None = None
        """The time of the issuer's last answer, None before the first."""
        self._is_fetching = False
        self._due_ms = -math.inf
        self._early_from_ms = -math.inf
        self._is_early = False
        self._failed_in_a_row = 0
        self._needless_in_a_row = 0
        self._reported: tuple[str, float] | None = None

    @property
    def due_ms(self) -> float:
        """The time of the next fetch: never while a fetch is under way."""
        return math.inf if self._is_fetching else self._due_ms

    def began(self) -> None:
        """Note that a fetch is under way."""
        assert not self._is_fetching, "one fetch at a time"
        self._is_fetching = True

    def missed(self, now_ms: float) -> float:
        """Note that a token names an unknown key. The answer is the time of the next fetch: now, if one is under
        way."""
        if self._is_fetching:
            return now_ms
        wanted_ms = max(now_ms, self._early_from_ms)
        if wanted_ms < self._due_ms:
            self._due_ms, self._is_early = wanted_ms, True
        return max(now_ms, self._due_ms)

    def fetched(self, jwks: str, now_ms: float) -> Fetch:
        """Take the issuer's answer, which may be no JWK set."""
        try:
            verifier = BearerVerifier.of_issuer(self._settings, jwks)
        except InvalidBearerSettings as error:
            return self.failed(str(error), now_ms)
        is_first, have_changed = self.fetched_ms is None, not verifier.has_keys_of(self.verifier)
        self._needless_in_a_row = self._needless_in_a_row + 1 if self._is_early and not have_changed else 0
        was_failing, self._failed_in_a_row, self._reported = self._failed_in_a_row > 0, 0, None
        self.verifier, self.fetched_ms = verifier, now_ms
        self._early_from_ms = now_ms + self._pauses.pause_ms(self._needless_in_a_row)
        self._end(now_ms + self._pauses.refresh_ms)
        return Fetch(None, is_first or have_changed or was_failing, have_changed, self._pauses.refresh_ms)

    def failed(self, reason: str, now_ms: float) -> Fetch:
        """Note a fetch without an answer, or with an invalid one."""
        pause_ms = self._pauses.pause_ms(self._failed_in_a_row)
        self._failed_in_a_row += 1
        self._early_from_ms = now_ms + pause_ms
        self._end(now_ms + pause_ms)
        reported = self._reported
        is_news = reported is None or reported[0] != reason or now_ms - reported[1] >= _REPORTED_AGAIN_MS
        if is_news:
            self._reported = (reason, now_ms)
        return Fetch(reason, is_news, False, pause_ms)

    def _end(self, due_ms: float) -> None:
        self._is_fetching = self._is_early = False
        self._due_ms = due_ms
