"""`deepinfer env`."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from deepinfer.cli.main import main
from deepinfer.hal.env_table import VARIABLES


def test_every_variable_is_described() -> None:
    result = CliRunner().invoke(main, ["env"])
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines() if not line.startswith(" ")] == list(VARIABLES)
    rows = json.loads(CliRunner().invoke(main, ["env", "--json"]).output)
    assert [row["name"] for row in rows] == list(VARIABLES)


def test_some_by_name_with_their_present_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPINFER_SAMPLER_FORCE_TOPK", "12")
    result = CliRunner().invoke(main, ["env", "sampler_force_topk", "DEEPINFER_ENABLE_MTP_VARLEN"])
    assert "DEEPINFER_SAMPLER_FORCE_TOPK = 0 (int)   now '12'" in result.output
    assert "Refused until there is: verification scheduled by confidence" in " ".join(result.output.split())
    assert result.output.count("\nDEEPINFER") + 1 == 2
    only = CliRunner().invoke(main, ["env", "--set", "--json"])
    assert "DEEPINFER_SAMPLER_FORCE_TOPK" in [row["name"] for row in json.loads(only.output)]
    result = CliRunner().invoke(main, ["env", "nextn"])
    assert result.exit_code == 2 and "closest known name is DEEPINFER_USE_NEXTN_DECODE" in result.output


def test_check(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert CliRunner().invoke(main, ["env", "--check"]).output == "the environment is in order\n"
    monkeypatch.setenv("DEEPINFER_USE_NEXT_DECODE", "3")
    result = CliRunner().invoke(main, ["env", "--check"])
    assert result.exit_code == 0 and "DEEPINFER_USE_NEXTN_DECODE" in result.stderr
    monkeypatch.setenv("DEEPINFER_ENABLE_MTP_VARLEN", "1")
    result = CliRunner().invoke(main, ["env", "--check"])
    assert result.exit_code == 2 and "verification scheduled" in result.stderr
