"""The keys of an issuer of tokens, as it publishes them: when they are fetched, and which of them count meanwhile.

    waiting     a fetch is due at `due_ms`              `began`                 leads to fetching
    fetching    one is under way, and never a second    `fetched`, `failed`     lead to waiting

- A whole answer counts as it is: a key that is not in it is not believed any more, and where it has none, nobody is.
- An answer that is none, or no answer, changes nothing: the keys that are there stay in use, and it is asked again
  after a pause that doubles. As long as there was no answer at all there is no key: every token is refused.
- A token that names an unknown key brings the next fetch forward, since its issuer may have changed its keys. Anybody
  can write such a token: between the end of one fetch and such another one there is a pause, too. It doubles with each
  that found no other keys, and is short again after one that did, or that was due by itself.

Kafka's sasl.oauthbearer.jwks.endpoint.* (KIP-768) have the names. There, each new kid brings a fetch of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from minilog_broker.security.bearer import BearerSettings, BearerVerifier, InvalidBearerSettings

_TOLD_AGAIN_MS = 600_000.0  # a failure that goes on is told six times an hour
_MOST_DOUBLINGS = 32


@dataclass(frozen=True, slots=True)
class FetchPauses:
    """In milliseconds. `refresh_ms`: from a fetch to the next; `backoff_ms`: the first pause after one that failed or
    was for nothing, doubled each time up to `backoff_max_ms`."""

    refresh_ms: float
    backoff_ms: float
    backoff_max_ms: float

    def pause_ms(self, former: int) -> float:
        """After so many before it."""
        return min(self.backoff_ms * 2.0 ** min(former, _MOST_DOUBLINGS), self.backoff_max_ms)


@dataclass(frozen=True, slots=True)
class Fetch:
    """What a fetch came to. `error`: why it failed, None where it did not. `is_news`: worth a line in the log.
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
        """By the keys that count now."""
        self.fetched_ms: float | None = None
        """When the issuer answered last; None: it never did."""
        self._is_fetching = False
        self._due_ms = -math.inf
        self._early_from_ms = -math.inf
        self._is_early = False
        self._failed_in_a_row = 0
        self._needless_in_a_row = 0
        self._told: tuple[str, float] | None = None

    @property
    def due_ms(self) -> float:
        """When to fetch; never while a fetch is under way."""
        return math.inf if self._is_fetching else self._due_ms

    def began(self) -> None:
        """A fetch is under way."""
        assert not self._is_fetching, "one fetch at a time"
        self._is_fetching = True

    def missed(self, now_ms: float) -> float:
        """A token names a key that is not here. The answer is when the next fetch begins; now, if one is under way."""
        if self._is_fetching:
            return now_ms
        wanted_ms = max(now_ms, self._early_from_ms)
        if wanted_ms < self._due_ms:
            self._due_ms, self._is_early = wanted_ms, True
        return max(now_ms, self._due_ms)

    def fetched(self, jwks: str, now_ms: float) -> Fetch:
        """The issuer's answer came; that it is a JWK set is yet to be seen."""
        try:
            verifier = BearerVerifier.of_issuer(self._settings, jwks)
        except InvalidBearerSettings as error:
            return self.failed(str(error), now_ms)
        is_first, have_changed = self.fetched_ms is None, not verifier.has_keys_of(self.verifier)
        self._needless_in_a_row = self._needless_in_a_row + 1 if self._is_early and not have_changed else 0
        was_failing, self._failed_in_a_row, self._told = self._failed_in_a_row > 0, 0, None
        self.verifier, self.fetched_ms = verifier, now_ms
        self._early_from_ms = now_ms + self._pauses.pause_ms(self._needless_in_a_row)
        self._end(now_ms + self._pauses.refresh_ms)
        return Fetch(None, is_first or have_changed or was_failing, have_changed, self._pauses.refresh_ms)

    def failed(self, reason: str, now_ms: float) -> Fetch:
        """No answer came, or one that is none."""
        pause_ms = self._pauses.pause_ms(self._failed_in_a_row)
        self._failed_in_a_row += 1
        self._early_from_ms = now_ms + pause_ms
        self._end(now_ms + pause_ms)
        is_news = self._told is None or self._told[0] != reason or now_ms - self._told[1] >= _TOLD_AGAIN_MS
        if is_news:
            self._told = (reason, now_ms)
        return Fetch(reason, is_news, False, pause_ms)

    def _end(self, due_ms: float) -> None:
        self._is_fetching = self._is_early = False
        self._due_ms = due_ms
