"""Delegation tokens in the metadata log: whose they are, until when, who may change them, and how many there are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minilog.errors import (
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    InvalidArgument,
    InvalidPrincipal,
    LevelNotReached,
    MinilogError,
)
from minilog.security.scram import ScramCredential, ScramMechanism
from minilog.security.scram_wire import mechanism_to_wire, verifier_of
from minilog.v1 import admin_pb2, records_pb2, security_pb2
from minilog_broker.controller import delegation_tokens
from minilog_broker.controller.delegation_tokens import NewToken, Requester, TokenSettings
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.record_kinds import apply_record, records_of
from minilog_broker.controller.snapshot import decode_snapshot, encode_snapshot
from minilog_broker.levels import SECURITY_LEVEL
from minilog_broker.storage.snapshot_id import SnapshotId
from tests.rules import proves
from tests.unit.controller.cluster import ControllerCluster, error_of

pytestmark = proves("MD.28")

ALICE, BOB, EVE = (Requester(f"User:{name}") for name in ("alice", "bob", "eve"))
ADMIN = Requester("User:admin", may_all=True)
SETTINGS = TokenSettings()
DAY_MS = 86_400_000


def credential(mechanism: ScramMechanism) -> ScramCredential:
    key = b"k" * mechanism.digest_bytes
    return ScramCredential(mechanism, b"s" * 24, 16_384, key, key)


CREDENTIALS = tuple(credential(each) for each in ScramMechanism)
TOKEN = NewToken("0f1e", "User:alice", CREDENTIALS, renewers=("User:bob",))


@pytest.fixture
def cluster() -> ControllerCluster:
    cluster = ControllerCluster()
    cluster.start_all(3)
    ticket = cluster.ticket()
    cluster.controller.upgrade_level(ticket, admin_pb2.UpgradeLevelRequest(level=SECURITY_LEVEL))
    assert error_of(cluster.answer(ticket, admin_pb2.UpgradeLevelResponse)) is None
    return cluster


def create(cluster: ControllerCluster, wanted: NewToken = TOKEN) -> security_pb2.CreateDelegationTokenResponse:
    ticket = cluster.ticket()
    cluster.controller.create_token(ticket, wanted, cluster.wall_ms)
    return cluster.answer(ticket, security_pb2.CreateDelegationTokenResponse)


def renew(
    cluster: ControllerCluster, who: Requester = ALICE, period_ms: int | None = None, token_id: str = TOKEN.token_id
) -> security_pb2.RenewDelegationTokenResponse:
    ticket = cluster.ticket()
    request = security_pb2.RenewDelegationTokenRequest(token_id=token_id, renew_period_ms=period_ms)
    cluster.controller.renew_token(ticket, request, who, cluster.wall_ms)
    return cluster.answer(ticket, security_pb2.RenewDelegationTokenResponse)


def expire(
    cluster: ControllerCluster, who: Requester = ALICE, period_ms: int | None = None, token_id: str = TOKEN.token_id
) -> security_pb2.ExpireDelegationTokenResponse:
    ticket = cluster.ticket()
    request = security_pb2.ExpireDelegationTokenRequest(token_id=token_id, expiry_period_ms=period_ms)
    cluster.controller.expire_token(ticket, request, who, cluster.wall_ms)
    return cluster.answer(ticket, security_pb2.ExpireDelegationTokenResponse)


def described(cluster: ControllerCluster, who: Requester = ALICE, *owners: str) -> list[str]:
    ticket = cluster.ticket()
    request = security_pb2.DescribeDelegationTokensRequest(owners=owners)
    cluster.controller.describe_tokens(ticket, request, who, cluster.wall_ms)
    return [each.token_id for each in cluster.answer(ticket, security_pb2.DescribeDelegationTokensResponse).tokens]


def pass_by(cluster: ControllerCluster, wait_ms: float) -> None:
    """Brokers go on speaking: only tokens grow old."""
    cluster.now_ms += wait_ms


class TestLife:
    def test_a_token_lives_for_a_day_and_is_renewed_for_a_week(self, cluster: ControllerCluster) -> None:
        now_ms = cluster.wall_ms
        told = create(cluster).token
        assert (told.token_id, told.owner, list(told.renewers)) == ("0f1e", "User:alice", ["User:bob"])
        assert told.issue_timestamp_ms == now_ms
        assert (told.expiry_timestamp_ms, told.max_timestamp_ms) == (now_ms + DAY_MS, now_ms + 7 * DAY_MS)

    def test_a_shorter_life_may_be_asked_for_and_no_longer_one(self, cluster: ControllerCluster) -> None:
        now_ms = cluster.wall_ms
        short = create(cluster, replace(TOKEN, token_id="short", max_lifetime_ms=5_000)).token
        assert short.expiry_timestamp_ms == short.max_timestamp_ms == now_ms + 5_000
        long = create(cluster, replace(TOKEN, token_id="long", max_lifetime_ms=30 * DAY_MS)).token
        assert long.max_timestamp_ms == now_ms + 7 * DAY_MS

    def test_a_renewal_counts_from_now_on_and_never_above_the_maximum(self, cluster: ControllerCluster) -> None:
        told = create(cluster).token
        pass_by(cluster, 1_000)
        assert renew(cluster).expiry_timestamp_ms == cluster.wall_ms + DAY_MS
        assert renew(cluster, period_ms=5_000).expiry_timestamp_ms == cluster.wall_ms + 5_000
        assert renew(cluster, period_ms=30 * DAY_MS).expiry_timestamp_ms == told.max_timestamp_ms

    def test_an_expired_token_is_not_renewed(self, cluster: ControllerCluster) -> None:
        create(cluster)
        pass_by(cluster, DAY_MS)
        assert isinstance(error_of(renew(cluster)), DelegationTokenExpired)
        assert isinstance(error_of(expire(cluster, period_ms=5)), DelegationTokenExpired)
        assert described(cluster) == []
        assert error_of(expire(cluster)) is None  # to remove it is no harm

    def test_a_token_can_end_sooner(self, cluster: ControllerCluster) -> None:
        create(cluster)
        assert expire(cluster, period_ms=5_000).expiry_timestamp_ms == cluster.wall_ms + 5_000
        assert cluster.image.tokens["0f1e"].expiry_timestamp_ms == cluster.wall_ms + 5_000

    @pytest.mark.parametrize("period_ms", [None, -1])
    def test_a_token_can_end_at_once(self, cluster: ControllerCluster, period_ms: int | None) -> None:
        create(cluster)
        assert expire(cluster, period_ms=period_ms).expiry_timestamp_ms == cluster.wall_ms
        assert cluster.image.tokens == {}
        assert isinstance(error_of(expire(cluster)), DelegationTokenNotFound)
        assert isinstance(error_of(renew(cluster)), DelegationTokenNotFound)

    @pytest.mark.parametrize("period_ms", [0, -5, 2**60])
    def test_a_period_that_cannot_be_is_refused(self, cluster: ControllerCluster, period_ms: int) -> None:
        create(cluster)
        assert isinstance(error_of(renew(cluster, period_ms=period_ms)), InvalidArgument)
        refused = create(cluster, replace(TOKEN, token_id="other", max_lifetime_ms=period_ms))
        assert isinstance(error_of(refused), InvalidArgument)

    def test_expired_tokens_are_removed_from_time_to_time(self, cluster: ControllerCluster) -> None:
        create(cluster, replace(TOKEN, max_lifetime_ms=5_000))
        create(cluster, replace(TOKEN, token_id="lives"))
        pass_by(cluster, SETTINGS.expiry_check_interval_ms)
        cluster.controller.tick(cluster.now_ms, cluster.wall_ms)
        cluster.commit()
        assert list(cluster.image.tokens) == ["lives"]
        assert cluster.controller.next_tick_ms <= cluster.now_ms + SETTINGS.expiry_check_interval_ms

    def test_a_thousand_are_removed_at_a_time(
        self, cluster: ControllerCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(delegation_tokens, "MAX_REMOVALS", 2)
        for number in range(3):
            create(cluster, replace(TOKEN, token_id=str(number), max_lifetime_ms=5_000))
        pass_by(cluster, SETTINGS.expiry_check_interval_ms)
        cluster.controller.tick(cluster.now_ms, cluster.wall_ms)
        cluster.commit()
        assert list(cluster.image.tokens) == ["2"]
        pass_by(cluster, delegation_tokens.SOON_MS)
        cluster.controller.tick(cluster.now_ms, cluster.wall_ms)
        cluster.commit()
        assert cluster.image.tokens == {}


class TestWhoMay:
    def test_its_renewer_may_what_its_owner_may(self, cluster: ControllerCluster) -> None:
        create(cluster)
        assert error_of(renew(cluster, BOB)) is None
        assert described(cluster, BOB) == ["0f1e"]
        assert error_of(expire(cluster, BOB)) is None

    def test_nobody_else_may(self, cluster: ControllerCluster) -> None:
        create(cluster)
        assert isinstance(error_of(renew(cluster, EVE)), DelegationTokenOwnerMismatch)
        assert isinstance(error_of(expire(cluster, EVE)), DelegationTokenOwnerMismatch)
        assert described(cluster, EVE) == described(cluster, EVE, "User:alice") == []
        assert list(cluster.image.tokens) == ["0f1e"]

    def test_a_user_with_all_rights_sees_all_and_ends_any(self, cluster: ControllerCluster) -> None:
        create(cluster)
        create(cluster, replace(TOKEN, token_id="0a", owner="User:bob", renewers=()))
        assert described(cluster, ADMIN) == ["0f1e", "0a"]
        assert described(cluster, ADMIN, "User:bob") == ["0a"]
        assert error_of(expire(cluster, ADMIN)) is None

    @pytest.mark.parametrize(
        ("renewers", "error"),
        [
            (("bob",), InvalidPrincipal),
            (("User:*",), InvalidPrincipal),
            (("Broker:minilog:1",), InvalidPrincipal),
            (tuple(f"User:{number}" for number in range(17)), InvalidArgument),
        ],
    )
    def test_a_renewer_is_a_user(
        self, cluster: ControllerCluster, renewers: tuple[str, ...], error: type[MinilogError]
    ) -> None:
        assert isinstance(error_of(create(cluster, replace(TOKEN, renewers=renewers))), error)
        assert cluster.image.tokens == {}


class TestHowMany:
    def test_there_is_a_limit_of_each_owner_and_of_all(
        self, cluster: ControllerCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(delegation_tokens, "MAX_TOKENS_OF_OWNER", 1)
        monkeypatch.setattr(delegation_tokens, "MAX_TOKENS", 2)
        create(cluster)
        refused = error_of(create(cluster, replace(TOKEN, token_id="second")))
        assert isinstance(refused, InvalidArgument)
        assert "User:alice has 1 delegation tokens" in str(refused)
        assert error_of(create(cluster, replace(TOKEN, token_id="bobs", owner="User:bob"))) is None
        refused = error_of(create(cluster, replace(TOKEN, token_id="eves", owner="User:eve")))
        assert "has 2 delegation tokens" in str(refused)

    def test_those_that_are_expired_make_room(
        self, cluster: ControllerCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(delegation_tokens, "MAX_TOKENS_OF_OWNER", 1)
        create(cluster, replace(TOKEN, max_lifetime_ms=5_000))
        pass_by(cluster, 5_000)
        assert error_of(create(cluster, replace(TOKEN, token_id="second"))) is None
        assert list(cluster.image.tokens) == ["second"]


class TestTheLog:
    def test_below_the_level_there_are_none(self) -> None:
        cluster = ControllerCluster()
        cluster.start_all(3)
        for answer in (create(cluster), renew(cluster), expire(cluster)):
            assert isinstance(error_of(answer), LevelNotReached)
        assert described(cluster) == []

    def test_a_snapshot_has_them(self, cluster: ControllerCluster) -> None:
        create(cluster)
        renew(cluster, period_ms=7_000)
        create(cluster, replace(TOKEN, token_id="gone"))
        expire(cluster, token_id="gone")
        image = cluster.image
        decoded = decode_snapshot(encode_snapshot(image, 1), SnapshotId(image.end_offset, 1))
        assert decoded == image == image.copy()
        assert decoded.tokens == image.tokens
        assert image.tokens["0f1e"].credentials == {each.mechanism: each for each in CREDENTIALS}
        rebuilt = MetadataImage()
        for record in records_of(image):
            apply_record(rebuilt, 0, record)
        assert rebuilt == image

    def test_another_token_makes_another_image(self, cluster: ControllerCluster) -> None:
        before = cluster.image.copy()
        create(cluster)
        assert cluster.image != before
        cluster.image.take_changes()
        before.become(cluster.image.copy())
        assert before.take_changes().security
        assert before == cluster.image

    def test_a_shown_token_has_no_verifier(self, cluster: ControllerCluster) -> None:
        create(cluster)
        assert "kkkk" not in repr(cluster.image.tokens["0f1e"])

    def test_a_user_that_is_deleted_takes_its_tokens_along(self, cluster: ControllerCluster) -> None:
        """Else who has the token would come in, in the name of nobody."""
        both = [
            security_pb2.UserAlteration(
                name="alice", mechanism=mechanism_to_wire(each.mechanism), verifier=verifier_of(each)
            )
            for each in CREDENTIALS
        ]
        alter(cluster, *both)
        create(cluster)
        create(cluster, replace(TOKEN, token_id="bobs", owner="User:bob"))
        one, other = (
            security_pb2.UserAlteration(name="alice", mechanism=mechanism_to_wire(each)) for each in ScramMechanism
        )
        alter(cluster, one)
        assert set(cluster.image.tokens) == {"0f1e", "bobs"}
        before = len(cluster.records)
        alter(cluster, other)
        assert set(cluster.image.tokens) == {"bobs"}
        kinds = [record.WhichOneof("record") for record in cluster.records[before:]]
        assert kinds == ["user_scram_credential", "delegation_token"]


def alter(cluster: ControllerCluster, *alterations: security_pb2.UserAlteration) -> None:
    ticket = cluster.ticket()
    cluster.controller.alter_users(ticket, security_pb2.AlterUsersRequest(alterations=alterations))
    assert error_of(cluster.answer(ticket, security_pb2.AlterUsersResponse)) is None


def test_no_record_has_a_field_for_a_secret() -> None:
    fields = {each.name for each in records_pb2.DelegationTokenRecord.DESCRIPTOR.fields}
    assert fields == {"token", "scram_sha_256", "scram_sha_512", "removed"}
    assert "hmac" not in {each.name for each in security_pb2.DelegationToken.DESCRIPTOR.fields}
