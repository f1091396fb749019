"""What a client's program needs besides addresses, where both systems are secured."""

from __future__ import annotations

import json
import os
from typing import Any

SETTINGS_VARIABLE = "BENCHMARK_CLIENT_SETTINGS"
"""An environment variable with JSON: {"minilog": {...}, "kafka": {...}}, each with the settings of its clients."""


def client_settings(system: str) -> dict[str, Any]:
    """Nothing where they are not secured."""
    found: dict[str, Any] = json.loads(os.environ.get(SETTINGS_VARIABLE, "{}")).get(system, {})
    return found
