"""Names and their coordinators: the same for all, for good."""

from minilog.net.coordinators_of import INTERNAL_PARTITIONS, coordinator_partition


def test_a_name_belongs_to_the_same_partition_for_good() -> None:
    assert [coordinator_partition(name) for name in ("", "spark-1", "report", "käse")] == [0, 1, 15, 5]


def test_names_are_spread_over_all_partitions() -> None:
    assert {coordinator_partition(f"name-{number}") for number in range(500)} == set(range(INTERNAL_PARTITIONS))
