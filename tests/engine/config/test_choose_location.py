"""The configuration is found in the documented order, and when there is none every place is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mcp_workbench.engine.config.choose import Located, locate
from mcp_workbench.errors import ConfigError

HERE = Located(os.path.join(".", "workbench-config.json"), is_project=True)


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "settings" / "mcp-workbench").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setattr("platformdirs.user_config_dir", _user_config_dir)


def _user_config_dir(name: str, appauthor: bool) -> str:
    return os.path.join(os.environ["XDG_CONFIG_HOME"], name)


def _file(path: Path) -> str:
    path.write_text("{}")
    return str(path)


@pytest.mark.requirement("config.found")
def test_the_option_comes_before_the_variable_and_the_usual_places(tmp_path: Path) -> None:
    _file(tmp_path / "here" / "workbench-config.json")
    option, variable = _file(tmp_path / "option.json"), _file(tmp_path / "variable.json")
    assert locate(option, None, {"WORKBENCH_CONFIG": variable}) == Located(option)
    assert locate(None, option, {"WORKBENCH_CONFIG": variable}) == Located(option)
    assert locate(None, None, {"WORKBENCH_CONFIG": variable}) == Located(variable)


@pytest.mark.requirement("config.found")
def test_the_current_folder_comes_before_the_folder_for_settings(tmp_path: Path) -> None:
    settings = _file(tmp_path / "settings" / "mcp-workbench" / "workbench-config.json")
    assert locate(None, None, {}) == Located(settings)
    _file(tmp_path / "here" / "workbench-config.json")
    assert locate(None, None, {"WORKBENCH_CONFIG": ""}) == HERE


@pytest.mark.requirement("config.found")
def test_two_different_names_are_refused_and_the_same_twice_is_not(tmp_path: Path) -> None:
    path = _file(tmp_path / "here" / "a.json")
    assert locate(path, "a.json", {}) == Located(path)
    with pytest.raises(ConfigError, match="named twice"):
        locate(path, "b.json", {})


@pytest.mark.parametrize(
    ("option", "argument", "environ", "source"),
    [
        ("gone.json", None, {}, "`--config`"),
        (None, "gone.json", {}, "the argument"),
        (None, None, {"WORKBENCH_CONFIG": "gone.json"}, "`WORKBENCH_CONFIG`"),
        (None, "no\0such", {}, "the argument"),
    ],
)
def test_missing_file_is_reported_with_the_setting_that_names_it(
    option: str | None, argument: str | None, environ: dict[str, str], source: str
) -> None:
    with pytest.raises(ConfigError, match=f"named by {source}, does not exist"):
        locate(option, argument, environ)


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = _file(tmp_path / "mine.json")
    assert locate(None, None, {"WORKBENCH_CONFIG": "~/mine.json"}) == Located(path)


def test_when_there_is_none_all_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        locate(None, None, {})
    for place in (
        "--config",
        "WORKBENCH_CONFIG",
        str(tmp_path / "here" / "workbench-config.json"),
        str(tmp_path / "settings" / "mcp-workbench" / "workbench-config.json"),
    ):
        assert place in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("folder", ["~/.config/mcp-workbench", None])
def test_without_a_home_the_folder_for_settings_is_skipped(folder: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(name: str, appauthor: bool) -> str:
        if folder is None:
            raise RuntimeError("no home")
        return folder

    monkeypatch.setattr("platformdirs.user_config_dir", homeless)
    with pytest.raises(ConfigError) as caught:
        locate(None, None, {})
    assert "~" not in str(caught.value)


def test_a_link_that_leads_nowhere_is_still_a_file(tmp_path: Path) -> None:
    (tmp_path / "here" / "workbench-config.json").symlink_to("nowhere")
    assert locate(None, None, {}) == HERE


def test_in_the_folder_for_settings_its_file_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = _file(tmp_path / "settings" / "mcp-workbench" / "workbench-config.json")
    monkeypatch.chdir(tmp_path / "settings" / "mcp-workbench")
    assert locate(None, None, {}) == Located(settings)
