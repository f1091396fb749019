"""Users, access rules and quotas in the metadata log: decided whole, kept in every image, told by the controller."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minilog.errors import (
    DuplicateResource,
    InvalidArgument,
    InvalidPrincipal,
    LevelNotReached,
    MinilogError,
    NotController,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedVersion,
)
from minilog.security.access_rules import (
    OPERATIONS_OF,
    AccessRule,
    AccessRuleFilter,
    Operation,
    Pattern,
    Permission,
    ResourceKind,
    filter_to_wire,
    rule_from_wire,
    rule_to_wire,
)
from minilog.security.quota_keys import QUOTA_KEYS
from minilog.security.scram import ScramCredential, ScramMechanism
from minilog.security.scram_wire import mechanism_to_wire, verifier_of
from minilog.v1 import admin_pb2, records_pb2, security_pb2
from minilog_broker.controller import security
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.record_kinds import apply_decision, apply_record, records_of
from minilog_broker.controller.snapshot import decode_snapshot, encode_snapshot
from minilog_broker.levels import SECURITY_LEVEL
from minilog_broker.storage.snapshot_id import SnapshotId
from tests.rules import proves
from tests.unit.controller.cluster import ControllerCluster, error_of

pytestmark = proves("MD.26")

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
NEW, EXISTING = security_pb2.USER_EXPECTATION_NEW, security_pb2.USER_EXPECTATION_EXISTING
READ = AccessRule("User:alice", "*", Operation.READ, ResourceKind.TOPIC, "flights", Pattern.LITERAL, Permission.ALLOW)
WRITE = replace(READ, operation=Operation.WRITE)
DENIED = replace(READ, principal="User:*", host="127.0.0.1", pattern=Pattern.PREFIXED, permission=Permission.DENY)


def credential(mechanism: ScramMechanism = SHA_512, number: int = 1, iterations: int = 4_096) -> ScramCredential:
    key = bytes([number]) * mechanism.digest_bytes
    return ScramCredential(mechanism, bytes([number]) * 16, iterations, key, key)


@pytest.fixture
def cluster() -> ControllerCluster:
    cluster = ControllerCluster()
    cluster.start_all(3)
    upgrade(cluster, SECURITY_LEVEL)
    return cluster


def upgrade(cluster: ControllerCluster, level: int) -> None:
    ticket = cluster.ticket()
    cluster.controller.upgrade_level(ticket, admin_pb2.UpgradeLevelRequest(level=level))
    assert error_of(cluster.answer(ticket, admin_pb2.UpgradeLevelResponse)) is None


def upsertion(
    name: str = "alice",
    of: ScramCredential | None = None,
    expectation: security_pb2.UserExpectation.ValueType = security_pb2.USER_EXPECTATION_NONE,
) -> security_pb2.UserAlteration:
    of = credential() if of is None else of
    return security_pb2.UserAlteration(
        name=name, mechanism=mechanism_to_wire(of.mechanism), verifier=verifier_of(of), expectation=expectation
    )


def keys_of_another_mechanism() -> security_pb2.UserAlteration:
    told = upsertion()
    told.mechanism = mechanism_to_wire(SHA_256)
    return told


def deletion(name: str = "alice", mechanism: ScramMechanism | None = None) -> security_pb2.UserAlteration:
    number = security_pb2.SCRAM_MECHANISM_NONE if mechanism is None else mechanism_to_wire(mechanism)
    return security_pb2.UserAlteration(name=name, mechanism=number)


def alter(cluster: ControllerCluster, *alterations: security_pb2.UserAlteration) -> MinilogError | None:
    ticket = cluster.ticket()
    cluster.controller.alter_users(ticket, security_pb2.AlterUsersRequest(alterations=alterations))
    return error_of(cluster.answer(ticket, security_pb2.AlterUsersResponse))


def described(cluster: ControllerCluster, *names: str) -> security_pb2.DescribeUsersResponse:
    ticket = cluster.ticket()
    cluster.controller.describe_users(ticket, security_pb2.DescribeUsersRequest(names=names))
    return cluster.answer(ticket, security_pb2.DescribeUsersResponse)


def create(
    cluster: ControllerCluster, *rules: AccessRule | security_pb2.AccessRule
) -> security_pb2.CreateAccessRulesResponse:
    told = [rule_to_wire(each) if isinstance(each, AccessRule) else each for each in rules]
    ticket = cluster.ticket()
    cluster.controller.create_access_rules(ticket, security_pb2.CreateAccessRulesRequest(rules=told))
    return cluster.answer(ticket, security_pb2.CreateAccessRulesResponse)


def delete(cluster: ControllerCluster, *filters: AccessRuleFilter) -> list[AccessRule]:
    ticket = cluster.ticket()
    request = security_pb2.DeleteAccessRulesRequest(filters=map(filter_to_wire, filters))
    cluster.controller.delete_access_rules(ticket, request)
    response = cluster.answer(ticket, security_pb2.DeleteAccessRulesResponse)
    assert error_of(response) is None
    return [rule_from_wire(each) for each in response.deleted]


def rules_of(cluster: ControllerCluster, wanted: AccessRuleFilter | None = None) -> list[AccessRule]:
    ticket = cluster.ticket()
    request = security_pb2.DescribeAccessRulesRequest(filter=filter_to_wire(wanted or AccessRuleFilter()))
    cluster.controller.describe_access_rules(ticket, request)
    return [rule_from_wire(each) for each in cluster.answer(ticket, security_pb2.DescribeAccessRulesResponse).rules]


def limit(cluster: ControllerCluster, *quotas: tuple[str, str, int | None]) -> security_pb2.AlterQuotasResponse:
    told = [security_pb2.QuotaAlteration(entity=entity, key=key, value=value) for entity, key, value in quotas]
    ticket = cluster.ticket()
    cluster.controller.alter_quotas(ticket, security_pb2.AlterQuotasRequest(alterations=told))
    return cluster.answer(ticket, security_pb2.AlterQuotasResponse)


def quotas_of(cluster: ControllerCluster, entity: str | None = None) -> list[tuple[str, str, int]]:
    ticket = cluster.ticket()
    cluster.controller.describe_quotas(ticket, security_pb2.DescribeQuotasRequest(entity=entity))
    told = cluster.answer(ticket, security_pb2.DescribeQuotasResponse).quotas
    return [(each.entity, each.key, each.value) for each in told]


def unchanged(cluster: ControllerCluster, before: int) -> bool:
    return len(cluster.records) == before


class TestUsers:
    def test_a_user_has_a_credential_for_each_mechanism(self, cluster: ControllerCluster) -> None:
        assert alter(cluster, upsertion(), upsertion(of=credential(SHA_256, 2)), upsertion("bob")) is None
        assert cluster.image.users == {
            "alice": {SHA_512: credential(), SHA_256: credential(SHA_256, 2)},
            "bob": {SHA_512: credential()},
        }
        assert alter(cluster, upsertion(of=credential(number=3, iterations=8_192))) is None
        assert cluster.image.users["alice"][SHA_512] == credential(number=3, iterations=8_192)
        assert alter(cluster, deletion(mechanism=SHA_512)) is None
        assert cluster.image.users["alice"] == {SHA_256: credential(SHA_256, 2)}
        assert alter(cluster, deletion(), deletion("bob")) is None
        assert cluster.image.users == {}

    def test_names_mechanisms_and_iterations_are_told_and_nothing_else(self, cluster: ControllerCluster) -> None:
        alter(cluster, upsertion("bob"), upsertion(of=credential(SHA_256, 7, 5_000)), upsertion())
        told = [
            (user.name, [(each.mechanism, each.iterations) for each in user.credentials])
            for user in described(cluster).users
        ]
        sha_256, sha_512 = mechanism_to_wire(SHA_256), mechanism_to_wire(SHA_512)
        assert told == [("alice", [(sha_256, 5_000), (sha_512, 4_096)]), ("bob", [(sha_512, 4_096)])]
        assert bytes([7]) * 16 not in described(cluster).SerializeToString()
        assert [each.name for each in described(cluster, "bob").users] == ["bob"]
        assert isinstance(error_of(described(cluster, "nobody")), ResourceNotFound)

    def test_a_created_user_was_not_there_unless_the_answer_was_lost(self, cluster: ControllerCluster) -> None:
        assert alter(cluster, upsertion(expectation=NEW)) is None
        before = len(cluster.records)
        assert alter(cluster, upsertion(expectation=NEW)) is None
        for other in (credential(number=2), credential(SHA_256)):
            error = alter(cluster, upsertion("bob"), upsertion(of=other, expectation=NEW))
            assert isinstance(error, DuplicateResource)
            assert "user 'alice' exists, with SCRAM-SHA-512" in str(error)
        assert unchanged(cluster, before)

    def test_an_altered_user_is_there(self, cluster: ControllerCluster) -> None:
        assert isinstance(alter(cluster, upsertion(expectation=EXISTING)), ResourceNotFound)
        assert alter(cluster, upsertion()) is None
        assert alter(cluster, upsertion(of=credential(SHA_256), expectation=EXISTING)) is None

    def test_removing_what_is_not_there_is_told_and_nothing_is_done(self, cluster: ControllerCluster) -> None:
        alter(cluster, upsertion())
        before = len(cluster.records)
        for wrong in (deletion("bob"), deletion(mechanism=SHA_256)):
            error = alter(cluster, deletion(), wrong)
            assert isinstance(error, ResourceNotFound)
            assert "has no credential for" in str(error)
        assert isinstance(alter(cluster, deletion(), upsertion()), DuplicateResource)
        assert unchanged(cluster, before)

    @pytest.mark.parametrize(
        ("wrong", "why"),
        [
            (upsertion(""), "1 to 255 printable characters"),
            (upsertion("x" * 256), "1 to 255 printable characters"),
            (upsertion("a\x1bb"), "printable"),
            (upsertion("*"), "it means every user"),
            (upsertion("\u2168"), "is written 'IX'"),
            (upsertion(of=credential(iterations=4_095)), "4096 to 1000000"),
            (upsertion(of=credential(iterations=1_000_001)), "4096 to 1000000"),
            (keys_of_another_mechanism(), "each has 32"),
        ],
    )
    def test_values_that_are_no_credential_are_refused(
        self, cluster: ControllerCluster, wrong: security_pb2.UserAlteration, why: str
    ) -> None:
        before = len(cluster.records)
        error = alter(cluster, upsertion("bob"), wrong)
        assert isinstance(error, UnacceptableCredential)
        assert why in str(error)
        for size in (7, 129):
            salted = upsertion()
            salted.verifier.salt = bytes(size)
            assert f"a salt of {size} bytes" in str(alter(cluster, salted))
        unknown = upsertion()
        unknown.mechanism = 9  # type: ignore[assignment]
        assert isinstance(alter(cluster, unknown), InvalidArgument)
        assert unchanged(cluster, before)

    def test_there_are_so_many_and_no_more(self, cluster: ControllerCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(security, "MAX_USERS", 2)
        assert alter(cluster, upsertion(), upsertion("bob"), upsertion("bob", credential(SHA_256))) is None
        assert "the limit is 2" in str(alter(cluster, upsertion("carol")))
        assert alter(cluster, upsertion("bob", credential(number=2))) is None


class TestRules:
    def test_a_rule_that_is_given_twice_is_one(self, cluster: ControllerCluster) -> None:
        assert create(cluster, READ, DENIED, READ).created_count == 2
        before = len(cluster.records)
        assert create(cluster, READ).created_count == 0
        assert unchanged(cluster, before)
        assert create(cluster, WRITE, READ).created_count == 1
        assert rules_of(cluster) == [READ, WRITE, DENIED]
        assert cluster.image.access_rules == {READ, WRITE, DENIED}

    @pytest.mark.parametrize(
        ("wanted", "found"),
        [
            (AccessRuleFilter(), [READ, WRITE, DENIED]),
            (AccessRuleFilter(principal="User:alice"), [READ, WRITE]),
            (AccessRuleFilter(operation=Operation.READ), [READ, DENIED]),
            (AccessRuleFilter(resource_kind=ResourceKind.GROUP), []),
            (AccessRuleFilter(name="flights", pattern=Pattern.LITERAL, operation=Operation.WRITE), [WRITE]),
            (AccessRuleFilter(host="127.0.0.1"), [DENIED]),
            (AccessRuleFilter(permission=Permission.ALLOW), [READ, WRITE]),
            (AccessRuleFilter(name=""), []),
        ],
    )
    def test_rules_are_told_and_deleted_by_what_they_have(
        self, cluster: ControllerCluster, wanted: AccessRuleFilter, found: list[AccessRule]
    ) -> None:
        create(cluster, DENIED, WRITE, READ)
        assert rules_of(cluster, wanted) == found
        assert delete(cluster, wanted) == found
        assert delete(cluster, wanted) == []
        assert cluster.image.access_rules == {READ, WRITE, DENIED} - set(found)

    def test_a_rule_that_several_filters_match_is_deleted_once(self, cluster: ControllerCluster) -> None:
        create(cluster, READ, WRITE, DENIED)
        wanted = AccessRuleFilter(principal="User:alice"), AccessRuleFilter(operation=Operation.READ)
        assert delete(cluster, *wanted) == [READ, WRITE, DENIED]
        assert delete(cluster) == []

    @pytest.mark.parametrize(
        ("wrong", "kind", "why"),
        [
            (replace(READ, principal="alice"), InvalidPrincipal, "write User:NAME"),
            (replace(READ, principal="Group:x"), InvalidPrincipal, "write User:NAME"),
            (replace(READ, principal="Broker:c:1"), InvalidPrincipal, "is not a user"),
            (replace(READ, principal="User: a"), InvalidPrincipal, "no spaces at its ends"),
            (replace(READ, host="localhost"), InvalidArgument, "do not look up host names"),
            (replace(READ, host="0::1"), InvalidArgument, "write ::1"),
            (replace(READ, name=""), InvalidArgument, "1 to 255"),
            (replace(READ, name="two words"), InvalidArgument, "no topic can have the name"),
            (replace(READ, name="*", pattern=Pattern.PREFIXED), InvalidArgument, "\\* is not a prefix"),
            (replace(READ, operation=Operation.CLUSTER_ACTION), InvalidArgument, "no operation cluster-action on"),
            (
                replace(READ, resource_kind=ResourceKind.CLUSTER, operation=Operation.ALTER),
                InvalidArgument,
                "minilog-cluster",
            ),
        ],
    )
    def test_rules_that_could_never_match_are_refused(
        self, cluster: ControllerCluster, wrong: AccessRule, kind: type[MinilogError], why: str
    ) -> None:
        before = len(cluster.records)
        error = error_of(create(cluster, READ, wrong))
        assert error is not None
        with pytest.raises(kind, match=why):
            raise error
        assert unchanged(cluster, before)

    def test_a_rule_that_says_too_little_or_what_is_not_known_is_refused(self, cluster: ControllerCluster) -> None:
        for field in ("operation", "resource_kind", "pattern", "permission"):
            for number in (0, 99):
                told = rule_to_wire(READ)
                setattr(told, field, number)
                assert isinstance(error_of(create(cluster, told)), InvalidArgument)
        request = security_pb2.DeleteAccessRulesRequest(filters=[security_pb2.AccessRuleFilter()])
        request.filters[0].operation = 99  # type: ignore[assignment]
        create(cluster, READ)
        ticket = cluster.ticket()
        cluster.controller.delete_access_rules(ticket, request)
        assert isinstance(error_of(cluster.answer(ticket, security_pb2.DeleteAccessRulesResponse)), InvalidArgument)
        assert cluster.image.access_rules == {READ}

    def test_every_operation_is_of_some_kind_of_resource(self) -> None:
        assert set().union(*OPERATIONS_OF.values()) == set(Operation)
        assert OPERATIONS_OF.keys() == set(ResourceKind)

    def test_there_are_so_many_and_no_more(self, cluster: ControllerCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(security, "MAX_RULES", 2)
        assert "the limit is 2" in str(error_of(create(cluster, READ, WRITE, DENIED)))
        assert create(cluster, READ, WRITE, READ).created_count == 2
        assert error_of(create(cluster, WRITE)) is None


class TestQuotas:
    def test_quotas_are_set_changed_and_removed(self, cluster: ControllerCluster) -> None:
        ours, everybodys = ("User:alice", "producer_byte_rate", 1_000), ("default", "connections", 0)
        assert list(limit(cluster, ours, everybodys).former) == []
        assert quotas_of(cluster) == [ours, everybodys]
        assert cluster.image.quotas == {"User:alice": {"producer_byte_rate": 1_000}, "default": {"connections": 0}}
        (former,) = limit(cluster, ("User:alice", "producer_byte_rate", 2_000)).former
        assert (former.entity, former.key, former.value) == ours
        assert quotas_of(cluster, "User:alice") == [("User:alice", "producer_byte_rate", 2_000)]
        before = len(cluster.records)
        limit(cluster, ("User:alice", "producer_byte_rate", 2_000))
        assert unchanged(cluster, before)
        for none in (None, -1):
            assert len(limit(cluster, ("User:alice", "producer_byte_rate", none)).former) == (none is None)
        assert cluster.image.quotas == {"default": {"connections": 0}}

    @pytest.mark.parametrize(
        ("wrong", "kind"),
        [
            (("alice", "connections", 1), InvalidPrincipal),
            (("User:*", "connections", 1), InvalidPrincipal),
            (("default", "request_percentage", 1), InvalidArgument),
            (("default", "request_rate", 0), InvalidArgument),
            (("default", "request_rate", -2), InvalidArgument),
            (("default", "request_rate", 2**53 + 1), InvalidArgument),
            (("User:alice", "connections", 2), DuplicateResource),
        ],
    )
    def test_values_that_are_no_quota_are_refused(
        self, cluster: ControllerCluster, wrong: tuple[str, str, int], kind: type[MinilogError]
    ) -> None:
        before = len(cluster.records)
        assert isinstance(error_of(limit(cluster, ("User:alice", "connections", 1), wrong)), kind)
        assert unchanged(cluster, before)

    def test_there_are_so_many_and_no_more(self, cluster: ControllerCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(security, "MAX_QUOTAS", len(QUOTA_KEYS))
        assert error_of(limit(cluster, *(("default", key, 1) for key in QUOTA_KEYS))) is None
        assert f"the limit is {len(QUOTA_KEYS)}" in str(error_of(limit(cluster, ("User:a", "connections", 1))))
        assert error_of(limit(cluster, ("default", "connections", 2))) is None


def filled(cluster: ControllerCluster) -> ControllerCluster:
    alter(cluster, upsertion(), upsertion(of=credential(SHA_256)), upsertion("bob"), upsertion("gone"))
    create(cluster, READ, WRITE, DENIED)
    limit(cluster, ("User:alice", "request_rate", 5), ("default", "connections", 7))
    alter(cluster, deletion("gone"))
    delete(cluster, AccessRuleFilter(operation=Operation.WRITE))
    return cluster


@pytest.mark.parametrize("level", [1, 2])
def test_below_their_level_nothing_is_written_and_the_way_there_is_told(level: int) -> None:
    cluster = ControllerCluster()
    cluster.start_all(3)
    upgrade(cluster, level)
    before = len(cluster.records)
    for error in (
        alter(cluster, upsertion()),
        alter(cluster, deletion()),
        error_of(create(cluster, READ)),
        error_of(limit(cluster, ("default", "connections", 1))),
    ):
        assert isinstance(error, LevelNotReached)
        assert "run `minilog cluster upgrade`" in str(error)
    assert unchanged(cluster, before)
    assert (list(described(cluster).users), rules_of(cluster), quotas_of(cluster)) == ([], [], [])
    upgrade(cluster, SECURITY_LEVEL)
    assert alter(cluster, upsertion()) is None


def test_a_snapshot_has_all_of_it_in_one_order(cluster: ControllerCluster) -> None:
    image = filled(cluster).image
    loaded = decode_snapshot(encode_snapshot(image, 1), SnapshotId(image.end_offset, 1))
    assert loaded == image
    assert (loaded.users, loaded.access_rules, loaded.quotas) == (image.users, image.access_rules, image.quotas)
    assert list(records_of(loaded)) == list(records_of(image))


def test_the_replay_goes_on_behind_a_snapshot_as_without_one(cluster: ControllerCluster) -> None:
    filled(cluster)
    for cut in range(len(cluster.records) - 12, len(cluster.records)):
        image = MetadataImage()
        apply_decision(image, 0, cut, cluster.records[:cut])
        loaded = decode_snapshot(encode_snapshot(image, 1), SnapshotId(cut, 1))
        apply_decision(loaded, cut, len(cluster.records), cluster.records[cut:])
        assert loaded == cluster.image


def test_whoever_listens_is_told_that_something_of_it_changed(cluster: ControllerCluster) -> None:
    image = cluster.image
    image.take_changes()
    alter(cluster, upsertion())
    assert image.take_changes().security
    create(cluster, READ)
    assert image.take_changes().security
    limit(cluster, ("default", "connections", 1))
    assert image.take_changes().security
    cluster.created("t")
    assert not image.take_changes().security


def test_an_image_that_becomes_a_snapshot_tells_it_where_it_is_another(cluster: ControllerCluster) -> None:
    former = cluster.image.copy()
    filled(cluster)
    same = cluster.image.copy()
    same.become(cluster.image.copy())
    assert not same.take_changes().security
    former.become(cluster.image.copy())
    assert former.take_changes().security
    assert former == cluster.image


def test_a_copy_does_not_change_with_its_original(cluster: ControllerCluster) -> None:
    twin = filled(cluster).image.copy()
    assert twin == cluster.image
    alter(cluster, deletion(mechanism=SHA_256))
    assert twin != cluster.image
    twin = cluster.image.copy()
    delete(cluster, AccessRuleFilter())
    assert twin != cluster.image
    twin = cluster.image.copy()
    limit(cluster, ("default", "connections", 8))
    assert twin != cluster.image


def test_another_controller_has_what_is_committed_and_nothing_else(cluster: ControllerCluster) -> None:
    filled(cluster)
    before = cluster.image.copy()
    cluster.controller.alter_users(0, security_pb2.AlterUsersRequest(alterations=[upsertion("lost")]))
    cluster.fail_over()
    assert isinstance(error_of(cluster.answer(0, security_pb2.AlterUsersResponse)), NotController)
    assert cluster.image == before
    assert [each.name for each in described(cluster).users] == ["alice", "bob"]


def test_changes_are_shown_when_they_are_committed(cluster: ControllerCluster) -> None:
    cluster.controller.alter_users(1_001, security_pb2.AlterUsersRequest(alterations=[upsertion()]))
    cluster.controller.describe_users(1_002, security_pb2.DescribeUsersRequest())
    assert cluster.controller.take_effects() == []
    assert len(cluster.answer(1_002, security_pb2.DescribeUsersResponse).users) == 1


def test_a_choice_that_is_not_known_was_made_by_a_later_version() -> None:
    rule = records_pb2.AccessRuleRecord(rule=rule_to_wire(READ))
    rule.rule.operation = 99  # type: ignore[assignment]
    user = records_pb2.UserScramCredentialRecord(user="alice", verifier=verifier_of(credential()))
    user.mechanism = 99  # type: ignore[assignment]
    for record in (
        records_pb2.MetadataRecord(access_rule=rule),
        records_pb2.MetadataRecord(user_scram_credential=user),
    ):
        with pytest.raises(UnsupportedVersion, match="written by a later version"):
            apply_record(MetadataImage(), 0, record)


def test_no_key_is_shown() -> None:
    assert "stored_key" not in repr(credential())
    assert "x01" not in repr(credential()).replace(repr(credential().salt), "")
