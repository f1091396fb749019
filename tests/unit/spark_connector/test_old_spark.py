"""What the source says in a PySpark that is too old for it."""

from __future__ import annotations

import pyspark.sql.datasource
import pytest
from pyspark.sql.types import StructType

from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.source import DefaultSource


def test_a_stream_is_refused_by_name_without_admission_control(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pyspark.sql.datasource, "ReadLimit")
    with pytest.raises(InvalidOption, match=r"a stream needs PySpark 4\.2 or later, and this is \d"):
        DefaultSource({"subscribe": "flights"}).streamReader(StructType())
