"""When a job's token is renewed or replaced, and what is handed to its tasks."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
from dataclasses import replace

import pytest

from minilog import Admin
from minilog.admin.security import DelegationToken, TokenInformation
from minilog.config import parse_config
from minilog.security.secret import Secret
from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.login import clients, task_login
from pyspark_minilog.login.task_login import TaskLogin, as_task
from pyspark_minilog.login.token_life import KeptToken, Step
from pyspark_minilog.options.table import SinkOptions, SourceOptions, parse_sink_options, parse_source_options
from pyspark_minilog.reading.read_task import ReadTask
from tests.rules import proves

pytestmark = proves("SPF.23")

NOW_MS, DAY_MS = 1_000_000, 86_400_000
SECRET = "planted="


def made(period_ms: int = 1_000, max_ms: int = 4_000, skew_ms: int = 0) -> KeptToken:
    issued = NOW_MS + skew_ms
    told = TokenInformation("0f1e", "User:job", (), issued, issued + period_ms, issued + max_ms)
    return KeptToken.of(DelegationToken(told, Secret(SECRET)), NOW_MS)


@pytest.mark.parametrize("skew_ms", [0, 3_600_000, -3_600_000])
class TestWhen:
    """Whatever the broker's clock says."""

    def test_a_token_is_kept_until_half_of_its_life_is_over(self, skew_ms: int) -> None:
        assert made(skew_ms=skew_ms).step(NOW_MS + 499) is Step.KEEP

    def test_then_it_is_renewed(self, skew_ms: int) -> None:
        token = made(skew_ms=skew_ms)
        assert token.step(NOW_MS + 500) is token.step(NOW_MS + 999) is Step.RENEW
        renewed = token.renewed(NOW_MS + skew_ms + 1_500)
        assert renewed.step(NOW_MS + 999) is Step.KEEP
        assert renewed.step(NOW_MS + 1_000) is Step.RENEW

    def test_a_token_that_is_over_is_replaced(self, skew_ms: int) -> None:
        assert made(skew_ms=skew_ms).step(NOW_MS + 1_000) is Step.CREATE

    def test_a_token_whose_maximum_is_near_is_replaced(self, skew_ms: int) -> None:
        """A renewal would give it less than half of a life: it would be renewed again and again."""
        token = made(max_ms=2_000, skew_ms=skew_ms).renewed(NOW_MS + skew_ms + 2_000)
        assert token.step(NOW_MS + 1_499) is Step.KEEP
        assert token.step(NOW_MS + 1_500) is Step.CREATE

    def test_a_token_that_cannot_be_renewed_is_replaced_at_half_of_its_life(self, skew_ms: int) -> None:
        assert made(max_ms=1_000, skew_ms=skew_ms).step(NOW_MS + 500) is Step.CREATE


def test_a_file_holds_it() -> None:
    token = made()
    assert KeptToken.from_json(token.to_json()) == token
    assert SECRET not in repr(token)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"token_id": "x"}', json.dumps({"token_id": 1, "hmac": 2})])
def test_a_file_that_holds_something_else_is_no_token(text: str) -> None:
    assert KeptToken.from_json(text) is None


LOGIN = TaskLogin({"bootstrap.servers": "b:1", "sasl.password": Secret(SECRET)})
SOURCE = {"bootstrap.servers": "127.0.0.1:1", "subscribe": "flights", "delegationTokens": "true"}
SECURED = {"security.protocol": "SASL_SSL", "sasl.username": "job", "sasl.password": "driver's"}


class TestWhatTasksGet:
    def test_a_task_that_is_pickled_has_it(self) -> None:
        options = parse_source_options(SOURCE)
        there = pickle.loads(pickle.dumps(ReadTask((), login=LOGIN)))
        client = as_task(options, there.login).client
        assert client == {"bootstrap.servers": "b:1", "sasl.password": Secret(SECRET)}
        assert as_task(options, None) is options

    def test_nothing_shows_it(self) -> None:
        options = as_task(parse_source_options(SOURCE), LOGIN)
        assert SECRET not in f"{LOGIN} {LOGIN!r} {ReadTask((), login=LOGIN)!r} {options!r}"

    def test_tokens_of_tasks_are_off_by_default(self) -> None:
        sink = {"bootstrap.servers": "127.0.0.1:1", "topic": "flights"}
        plain: list[SourceOptions | SinkOptions] = [
            parse_source_options({**SOURCE, "delegationTokens": "false"}),
            parse_sink_options(sink),
        ]
        assert [task_login.task_login(each) for each in plain] == [None, None]
        assert parse_sink_options({**sink, "delegationTokens": "true"}).delegates

    @pytest.mark.parametrize(
        ("more", "told"),
        [
            ({}, "security.protocol is PLAINTEXT: tokens need SASL_SSL"),
            ({**SECURED, "sasl.tokenauth": "true"}, "the driver itself logs in with a delegation token"),
        ],
    )
    def test_where_there_can_be_none_it_is_refused(self, more: dict[str, str], told: str) -> None:
        options = parse_source_options(SOURCE)
        with pytest.raises(InvalidOption, match=told):
            task_login.task_login(replace(options, client=options.client | more))

    def test_tasks_have_what_the_driver_has_but_who_it_is(
        self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also of the driver's file, and of its environment."""
        file = tmp_path / "job.properties"
        file.touch(0o600)
        said = {**SECURED, "ssl.truststore.location": "/ca.pem", "request.timeout.ms": "7000"}
        file.write_text("".join(f"{name}={value}\n" for name, value in said.items()))
        monkeypatch.setenv("MINILOG_SASL_MECHANISM", "SCRAM-SHA-256")
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
        monkeypatch.setattr(task_login, "_renewed_or_new", lambda whole, kept: made(DAY_MS, 7 * DAY_MS))
        monkeypatch.setattr(task_login, "_now_ms", lambda: NOW_MS)
        login = task_login.task_login(parse_source_options({**SOURCE, "minilog.config.file": str(file)}))
        assert login is not None
        client = login.applied(parse_source_options(SOURCE)).client
        assert "config.file" not in client
        config = parse_config(client)
        assert (config.sasl_username, config.sasl_password) == ("0f1e", Secret(SECRET))
        assert (config.sasl_mechanism, config.sasl_tokenauth) == ("SCRAM-SHA-512", True)
        assert (config.ssl_truststore_location, config.request_timeout_ms) == ("/ca.pem", 7_000)
        kept = [each for each in (tmp_path / f"minilog-{os.getuid()}").iterdir() if each.suffix == ".token"]
        assert [oct(each.stat().st_mode & 0o777) for each in kept] == ["0o600"]
        assert "driver's" not in kept[0].read_text()

    def test_a_folder_that_others_may_look_into_is_refused(
        self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / f"minilog-{os.getuid()}").mkdir(mode=0o755)
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
        options = parse_source_options(SOURCE)
        with pytest.raises(InvalidOption, match="not a folder of this user alone"):
            task_login.task_login(replace(options, client=options.client | SECURED))


def test_an_idle_client_with_a_token_is_closed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", **SECURED, "sasl.tokenauth": "true"}
    with clients.lend(Admin, settings) as first:
        pass
    with clients.lend(Admin, settings) as again:
        assert again is first
    (key, end), *others = clients._ends.items()
    assert others == []
    end.cancel()
    end.function(*end.args)
    assert key not in clients._idle
    assert clients._ends == {}
    with clients.lend(Admin, {"bootstrap.servers": "127.0.0.1:1"}) as plain:
        pass
    assert clients._ends == {}
    clients._idle.clear()
    plain.close()
