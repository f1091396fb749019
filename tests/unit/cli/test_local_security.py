"""What `minilog up --secure` makes: whole, or not at all, and nobody else's to read."""

from __future__ import annotations

import os
import pathlib

import pytest

from minilog_broker.server.config_layers import load_config
from minilog_tools.cli import app
from minilog_tools.local_cluster import LocalCluster
from minilog_tools.local_security import open_security


class TestLocalClusters:
    def test_a_moved_folder(self, tmp_path: pathlib.Path) -> None:
        open_security(tmp_path / "a", [1], "127.0.0.1:9092")
        (tmp_path / "a").rename(tmp_path / "b")
        again = open_security(tmp_path / "b", [1], "127.0.0.1:9092")
        assert pathlib.Path(str(again.client_settings()["ssl.truststore.location"])).exists()

    def test_other_ports(self, tmp_path: pathlib.Path) -> None:
        open_security(tmp_path / "a", [1], "127.0.0.1:9092")
        again = open_security(tmp_path / "a", [1, 2], "127.0.0.1:19092,127.0.0.1:19093")
        assert "127.0.0.1:19092" in again.client_properties.read_text()

    def test_a_broker_whose_certificate_was_half_written(self, tmp_path: pathlib.Path) -> None:
        open_security(tmp_path / "a", [1], "127.0.0.1:9092")
        (tmp_path / "a" / "security" / "broker-2.pem").touch(0o600)
        open_security(tmp_path / "a", [1, 2], "127.0.0.1:9092")
        assert b"PRIVATE KEY" in (tmp_path / "a" / "security" / "broker-2.pem").read_bytes()

    def test_properties_that_are_gone(self, tmp_path: pathlib.Path) -> None:
        open_security(tmp_path / "a", [1], "127.0.0.1:9092").client_properties.unlink()
        again = open_security(tmp_path / "a", [1], "127.0.0.1:9092")
        assert again.client_properties.exists()

    def test_a_link_in_the_place_of_what_is_made(self, tmp_path: pathlib.Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "a" / "security.part").symlink_to(tmp_path / "elsewhere")
        open_security(tmp_path / "a", [1], "127.0.0.1:9092")
        assert not list((tmp_path / "elsewhere").iterdir())

    def test_keys_that_others_may_read(self, tmp_path: pathlib.Path) -> None:
        security = open_security(tmp_path / "a", [1], "127.0.0.1:9092")
        os.chmod(tmp_path / "a" / "security" / "broker-1.pem", 0o644)
        os.chmod(security.client_properties, 0o644)
        with pytest.raises(Exception, match="chmod"):
            open_security(tmp_path / "a", [1], "127.0.0.1:9092")

    def test_settings_of_the_console_are_for_the_broker_that_serves_it(self, tmp_path: pathlib.Path) -> None:
        """Else `up --console-port 9644 --set console.actions.enable=true` starts one broker of three."""
        settings = {"console.actions.enable": "true", "log.level": "warning"}
        cluster = LocalCluster(tmp_path, [9092, 9093], settings, console_port=9644)
        first, second = (cluster._command(broker_id, tmp_path) for broker_id in (1, 2))
        assert ("console.actions.enable=true" in first, "console.actions.enable=true" in second) == (True, False)
        assert "log.level=warning" in second

    @pytest.mark.parametrize("setting", ["security.protocol=PLAINTEXT", "listeners=plaintext://127.0.0.1:29099"])
    def test_a_setting_does_not_open_a_secured_cluster(
        self, setting: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        given = ["up", "--data-dir", str(tmp_path), "--secure", "--set", setting, "--port", "29092"]
        assert app.run(given) == 1
        assert f"{setting.partition('=')[0]} is set by --secure" in capsys.readouterr().err

    def test_nor_does_a_listener_of_the_environment(self, tmp_path: pathlib.Path) -> None:
        settings = open_security(tmp_path / "a", [1], "127.0.0.1:9092").settings(1, "127.0.0.1:9192")
        config = load_config(environment={"MINILOG_LISTENERS": "plaintext://127.0.0.1:9099"}, overrides=settings)
        assert config.listeners == ()

    def test_a_secured_directory_is_not_started_in_the_clear(
        self, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        open_security(tmp_path, [1], "127.0.0.1:9092")
        assert app.run(["up", "--data-dir", str(tmp_path), "--port", "29092"]) == 1
        assert "give --secure" in capsys.readouterr().err
