"""A voter loses its disk: it goes on as an observer, is replaced by command, and then counts as any other."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from minilog.errors import InvalidArgument
from tests.cluster import running_cluster
from tests.integration.moving import Writing, admin, create, wait_in_sync, wait_until


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_a_lost_voter_is_replaced_by_command_and_counts_from_then_on(tmp_path: pathlib.Path) -> None:
    with running_cluster(tmp_path, voters=3) as cluster:
        create(cluster, "kept")
        with Writing(cluster, "kept") as writer, admin(cluster) as client:
            cluster.kill(2)
            shutil.rmtree(cluster.data_directory(2))
            wait_until(lambda: {each.id: each.state for each in client.describe_cluster().brokers}[2] == "fenced")
            cluster.start(2)
            wait_until(lambda: [voter.id for voter in client.describe_cluster().voters if voter.lost] == [2])
            cluster.wait_running()
            lost, found = client.replace_voter(2)
            assert lost != found
            with pytest.raises(InvalidArgument, match="replaced already"):
                client.replace_voter(2, lost_directory_id=lost)
            wait_until(lambda: not any(voter.lost for voter in client.describe_cluster().voters))
            wait_in_sync(cluster, "kept")
            writer.wait_for_more(100)
            cluster.kill(3)  # only with the replaced one there is a majority
            create(cluster, "after", replication_factor=2)
            writer.wait_for_more(100)
            cluster.start(3)
            cluster.wait_running()
            wait_in_sync(cluster, "kept")
