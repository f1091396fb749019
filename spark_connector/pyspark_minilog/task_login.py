"""delegationTokens=true: the driver alone logs in as its settings say, and its tasks by a delegation token.

The token travels in what Spark pickles for a task, and nowhere else: no option, plan, log or repr has it. Spark makes
Python processes on the driver for each plan, some of which live for one micro-batch: so the token of a job, and of all
jobs of this user that log in alike, is kept in a file of his alone on the driver's machine, as ssh and Kerberos keep
theirs, and is renewed by whoever finds that half of its life is over (token_life.py). A stream's process looks also
while a micro-batch takes long.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import pathlib
import stat
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from minilog.addresses import address_text
from minilog.security.secret import Secret
from pyspark_minilog.client_options import DELEGATION_TOKENS as OPTION
from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.options import SinkOptions, SourceOptions
from pyspark_minilog.token_life import KeptToken, Step

logger = logging.getLogger(__name__)

_Options = TypeVar("_Options", SourceOptions, SinkOptions)
_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.2, 60.0
_AFTER_FAILURE_S = 2.0
_BELIEVED_S = 30.0  # a token that is no more is noticed so soon, at the cost of one question


class TaskLogin:
    """What a task's clients are made of, in the place of what the driver's are. It shows nothing of it; to be pickled
    for a task is what it is for."""

    __slots__ = ("_settings",)

    def __init__(self, settings: Mapping[str, str | Secret]) -> None:
        self._settings = dict(settings)

    def applied(self, options: _Options) -> _Options:
        """The options of a task."""
        return replace(options, client=dict(self._settings))

    def __repr__(self) -> str:
        return "TaskLogin(***)"

    def __reduce__(self) -> tuple[object, tuple[dict[str, str], dict[str, str]]]:
        plain = {name: each for name, each in self._settings.items() if isinstance(each, str)}
        secret = {name: each.reveal() for name, each in self._settings.items() if isinstance(each, Secret)}
        return _restored, (plain, secret)


def _restored(plain: dict[str, str], secret: dict[str, str]) -> TaskLogin:
    return TaskLogin(plain | {name: Secret(each) for name, each in secret.items()})


def as_task(options: _Options, login: TaskLogin | None) -> _Options:
    """The options that a task has: as they are where it logs in as the driver does."""
    return options if login is None else login.applied(options)


def task_login(options: SourceOptions | SinkOptions) -> TaskLogin | None:
    """On the driver, for the tasks that are planned now; None: they log in as the driver does. Raises InvalidOption,
    MinilogError."""
    if not options.delegates:
        return None
    login, _ = _current(options.client)
    return login


class LoginKeeper:
    """The same for a stream, while it lives: a thread renews the token also between two micro-batches."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def login(self) -> TaskLogin | None:
        """As task_login."""
        found = task_login(self._options)
        if found is not None and self._thread is None:
            self._thread = threading.Thread(target=self._work, name="minilog-token", daemon=True)
            self._thread.start()
        return found

    def stop(self) -> None:
        """The stream ends."""
        self._ended.set()

    def _work(self) -> None:
        pause_s = 0.0
        while not self._ended.wait(pause_s):
            try:
                _, kept = _current(self._options.client)
                left_s = (kept.renew_at_ms - _now_ms()) / 1000
                pause_s = min(max(left_s, _LEAST_PAUSE_S), _MOST_PAUSE_S)
            except Exception as error:  # the next micro-batch meets it, and tells it
                logger.warning("the delegation token of the tasks was not renewed: %s", error)
                pause_s = _AFTER_FAILURE_S


def _current(client: Mapping[str, Any]) -> tuple[TaskLogin, KeptToken]:
    """The login of tasks that log in now, with a token that has half of its life at least."""
    from pyspark_minilog.config_file import with_file

    whole = with_file(client)
    common = _common_settings(whole)
    kept = _kept(whole, common)
    of_token: dict[str, str | Secret] = {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": kept.token_id,
        "sasl.password": kept.hmac,
        "sasl.tokenauth": "true",
    }
    return TaskLogin({**common, **of_token}), kept


def _common_settings(whole: Mapping[str, Any]) -> dict[str, str]:
    """What tasks have of the driver's settings: all but who it is. Raises InvalidOption where there can be no token."""
    from minilog.config import parse_config
    from minilog.security.protocols import SecurityProtocol

    config = parse_config(whole)
    if config.security_protocol != SecurityProtocol.SASL_SSL.value:
        raise InvalidOption(
            f"option '{OPTION}' is 'true', but security.protocol is {config.security_protocol}: tokens need SASL_SSL, "
            "and a driver with a password or with an issuer's token. Set them in minilog.config.file, or leave the "
            "option out"
        )
    if config.sasl_tokenauth:
        raise InvalidOption(
            f"option '{OPTION}' is 'true', but the driver itself logs in with a delegation token, and such a token "
            "cannot create another one: give the driver a password, or leave the option out"
        )
    own = ("sasl.", "ssl.keystore.")
    found = {name: str(value) for name, value in whole.items() if not name.startswith(own)}
    found["security.protocol"] = config.security_protocol
    found["ssl.truststore.location"] = config.ssl_truststore_location
    found["bootstrap.servers"] = ",".join(address_text(each) for each in config.bootstrap_servers)
    return found


def _kept(whole: Mapping[str, Any], common: Mapping[str, str]) -> KeptToken:
    """The token of the file, if it is good enough; else it is renewed, or another one takes its place there."""
    from minilog.config import parse_config

    config = parse_config(whole)
    who = config.sasl_username or config.sasl_oauthbearer_token_file
    named = (config.sasl_mechanism, who, common["bootstrap.servers"], common["ssl.truststore.location"])
    name = hashlib.sha256("\0".join(named).encode()).hexdigest()[:32]
    path = _private_directory() / f"{name}.token"
    with _locked(path.with_suffix(".lock")):
        kept = KeptToken.from_json(path.read_text()) if path.exists() else None
        step = Step.CREATE if kept is None else kept.step(_now_ms())
        if kept is not None and step is Step.KEEP:
            if _is_fresh(path):
                return kept
            if _is_there(whole, kept):
                os.utime(path)
                return kept
        found = _asked(whole, kept if step is Step.RENEW else None)
        _write(path, found.to_json())
    return found


def _is_fresh(path: pathlib.Path) -> bool:
    """It was made, or found there, a short time ago."""
    return 0 <= time.time() - path.stat().st_mtime < _BELIEVED_S


def _is_there(whole: Mapping[str, Any], kept: KeptToken) -> bool:
    """Whether the cluster still has it: somebody may have expired it, or another cluster be at the address. One that
    does not answer now says nothing against it. Raises MinilogError."""
    from minilog import Admin
    from minilog.errors import MinilogError

    try:
        with Admin(whole) as admin:
            return any(each.token_id == kept.token_id for each in admin.describe_delegation_tokens())
    except MinilogError as error:
        if not error.retriable:
            raise
        logger.info("the driver could not ask whether the delegation token still exists: %s", error)
        return True


def _asked(whole: Mapping[str, Any], kept: KeptToken | None) -> KeptToken:
    """`kept`, renewed; another one where there is none, or it is not there any more. Raises MinilogError."""
    from minilog import Admin
    from minilog.errors import DelegationTokenExpired, DelegationTokenNotFound

    with Admin(whole) as admin:
        if kept is not None:
            try:
                return kept.renewed(admin.renew_delegation_token(kept.token_id))
            except (DelegationTokenExpired, DelegationTokenNotFound) as error:
                logger.info("the driver creates another delegation token: %s", error)
        now_ms = _now_ms()
        return KeptToken.of(admin.create_delegation_token(), now_ms)


def _private_directory() -> pathlib.Path:
    """One that nobody else may look into. Raises InvalidOption where somebody else was first."""
    path = pathlib.Path(tempfile.gettempdir()) / f"minilog-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidOption(
            f"option '{OPTION}' is 'true', but {path} is not a folder of this user alone (mode 700), and the driver "
            "keeps the token there: remove it, or give the driver a TMPDIR of its own"
        )
    return path


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """One process of this user at a time."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(path: pathlib.Path, content: str) -> None:
    """Whole, or as it was."""
    descriptor, name = tempfile.mkstemp(dir=path.parent)  # mode 600
    with os.fdopen(descriptor, "w") as file:
        file.write(content)
    os.replace(name, path)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
