"""The shell around security/issuer_keys.py, which fetches the keys of an issuer by https.

Each broker fetches for itself, on its own thread, one fetch at a time. Unlike Kafka's, a broker does not wait for the
first answer before it serves. A cluster that starts again after a power cut must not need an issuer, which may itself
need the cluster. Before the first answer, tokens are refused with an error that clients retry.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from minilog.errors import BrokerNotAvailable, InvalidConfig
from minilog_broker.security.audit import Audit, AuditEvent, Decision
from minilog_broker.security.bearer import BearerSettings, BearerVerifier
from minilog_broker.security.https_url import HttpsUrl
from minilog_broker.security.issuer_keys import FetchPauses, IssuerKeys
from minilog_broker.server.access.https_fetch import FetchFailed, fetch, tls_context
from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.runtime.timer import now_ms

logger = structlog.get_logger()

LOOK_AGAIN_MS = 3_000.0  # the wait of a token with an unknown key for newer keys; less than an exchange may take
_MOST_NAMES = 5  # of keys, in a line of a log
_NO_KEY_YET = "this broker has no keys of tokens yet, and its log has the reason: ask another broker, or try again"


@dataclass(frozen=True, slots=True)
class KeysLook:
    """The state of the keys for metrics. `age_s`: the time since the issuer's last answer, or since this broker's first
    fetch where there was none."""

    keys: int
    age_s: float


class JwksEndpoint:
    """The task of a broker that fetches an issuer's keys, and the verifier that has them.

    `run` fetches until it is cancelled. Each change of the keys goes to `audit`. Raises InvalidConfig where the file of
    authorities cannot be used.
    """

    def __init__(self, config: BrokerConfig, settings: BearerSettings, audit: Audit) -> None:
        self._url = HttpsUrl.parse(config.sasl_oauthbearer_jwks_endpoint_url)
        self._truststore = config.sasl_oauthbearer_jwks_endpoint_ssl_truststore_location
        self._audit = audit
        self._keys = IssuerKeys(
            settings,
            FetchPauses(
                config.sasl_oauthbearer_jwks_endpoint_refresh_ms,
                config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
                config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
            ),
        )
        self._began_ms: float | None = None
        self._sooner = asyncio.Event()
        self._ended = asyncio.Event()  # set at the end of the next fetch; each fetch has a new one
        try:
            tls_context(self._truststore)
        except OSError as error:
            raise InvalidConfig(
                f"sasl.oauthbearer.jwks.endpoint.ssl.truststore.location={self._truststore} cannot be used "
                f"({error.strerror or type(error).__name__}): give a PEM file with certificates of authorities"
            ) from None

    def verifier(self) -> BearerVerifier:
        return self._keys.verifier

    async def look_again(self) -> None:
        ended, until_ms = self._ended, now_ms() + LOOK_AGAIN_MS
        begins_ms = self._keys.missed(now_ms())
        self._sooner.set()
        if begins_ms < until_ms:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_MS / 1000.0):
                    await ended.wait()
        if self._keys.fetched_ms is None:
            raise BrokerNotAvailable(_NO_KEY_YET)

    def look(self) -> KeysLook:
        """The state of the keys, for metrics."""
        since_ms = self._keys.fetched_ms if self._keys.fetched_ms is not None else self._began_ms
        age_s = 0.0 if since_ms is None else (now_ms() - since_ms) / 1000.0
        return KeysLook(len(self._keys.verifier.key_names), age_s)

    async def run(self) -> None:
        """Fetch whenever a fetch is due, until cancelled."""
        self._began_ms = now_ms()
        while True:
            pause_s = (self._keys.due_ms - now_ms()) / 1000.0
            if pause_s > 0:
                self._sooner.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._sooner.wait()
                continue
            self._keys.began()
            await self._fetch()
            ended, self._ended = self._ended, asyncio.Event()
            ended.set()

    async def _fetch(self) -> None:
        try:
            document = await _on_a_thread(lambda: fetch(self._url, self._truststore))
        except FetchFailed as error:
            ended = self._keys.failed(str(error), now_ms())
        else:
            ended = self._keys.fetched(document, now_ms())
        names = ", ".join(self._keys.verifier.key_names[:_MOST_NAMES])
        about = {"url": str(self._url), "keys": len(self._keys.verifier.key_names), "named": names}
        if ended.error is not None:
            if ended.is_news:
                has_keys = self._keys.fetched_ms is not None
                effect = "the former keys stay in use" if has_keys else "the broker refuses all tokens"
                again_ms = round(ended.next_in_ms)
                logger.warning(
                    f"a fetch of keys of tokens failed: {effect}", error=ended.error, again_ms=again_ms, **about
                )
            return
        if ended.is_news:
            logger.info(
                "the broker fetched keys of tokens", passed_over=self._keys.verifier.passed_over[:_MOST_NAMES], **about
            )
        if ended.have_changed:
            reason = f"the keys of tokens are now: {names or 'none'}"
            self._audit(AuditEvent("Broker", "", "FetchKeys", "", str(self._url), Decision.ALLOWED, reason))


async def _on_a_thread(work: Callable[[], str]) -> str:
    """Run work on a thread that does not hold up the end of the process. It cannot be cancelled, and then its result is
    dropped."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str] = loop.create_future()

    def settle(result: str | BaseException) -> None:
        if done.cancelled():
            return
        if isinstance(result, BaseException):
            done.set_exception(result)
        else:
            done.set_result(result)

    def run() -> None:
        result: str | BaseException
        try:
            result = work()
        except BaseException as error:
            result = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=run, name="jwks-endpoint", daemon=True).start()
    return await done
