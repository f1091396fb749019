"""The pool of clusters that files of tests share: a cluster is handed on as new, or not at all."""

from __future__ import annotations

import contextlib
import pathlib

import pytest

from minilog import Admin, NewTopic
from minilog.admin.security import QuotaAlteration, UserUpsertion
from tests.cluster import Cluster
from tests.pool import ClusterPool, Kind

ALONE = Kind(1)


def test_a_cluster_is_handed_on_without_what_a_file_made_and_ends_where_a_setting_is_left(
    tmp_path: pathlib.Path,
) -> None:
    with contextlib.closing(ClusterPool(lambda: tmp_path / str(len(list(tmp_path.iterdir()))))) as pool:
        with pool.lent(ALONE) as first, Admin(first.client) as admin:
            admin.create_topics([NewTopic("made", 1, 1)])
            admin.alter_users([UserUpsertion("ann", "no horse staples itself", iterations=4_096)])
            admin.alter_quotas([QuotaAlteration("User:ann", "connections", 3)])
            (process,) = first.processes.values()
        with pytest.raises(AssertionError, match="given back as it was lent"):
            leave_a_setting(pool, first)
        assert process.poll() is not None
        with pool.lent(ALONE) as third:
            assert third is not first
            (process,) = third.processes.values()
            assert process.poll() is None
    assert process.poll() is not None


def leave_a_setting(pool: ClusterPool, before: Cluster) -> None:
    with pool.lent(ALONE) as cluster, Admin(cluster.client) as admin:
        assert cluster is before
        assert (admin.list_topics(), admin.describe_users(), admin.describe_quotas()) == ([], [], [])
        admin.alter_broker_settings(None, set_configs={"log.level": "warning"})
