"""Environment variables: every parser, the cache, planned variables, unknown names."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deepinfer.hal import env
from deepinfer.hal.env_table import VARIABLES
from deepinfer.hal.errors import InvalidArgumentError, NotSupportedError


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    env.rearm()
    yield
    env._defaults.clear()
    env.rearm()


def test_defaults_without_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert env.get("DEEPINFER_ACCELERATOR") is None
    assert env.get("DEEPINFER_BATCH_INVARIANT") is True
    assert env.get("DEEPINFER_STRICT_KERNELS") is False
    assert env.get("DEEPINFER_GLOO_TIMEOUT") == 14400
    assert env.get("DEEPINFER_DECODE_TOKEN_BLACKLIST") == ()
    assert env.get("DEEPINFER_NUM_STATE_SLOTS_RATIO") == 1.2
    assert env.get("DEEPINFER_ENGRAM_FORCE_GPU_STORAGE") is None
    assert not env.is_set("DEEPINFER_PIN")


@pytest.mark.parametrize("name", VARIABLES)
def test_every_default_is_a_value_its_own_parser_gives(name: str) -> None:
    variable = VARIABLES[name]
    assert name.startswith("DEEPINFER_") and variable.doc.endswith(".")
    if variable.default not in (None, ()):
        text = {True: "1", False: "0"}[variable.default] if variable.kind.name == "bool" else str(variable.default)
        if variable.kind.name == "floats":
            text = ",".join(map(str, variable.default))
        assert variable.parse(text) == variable.default
    assert all(value == variable.default or variable.status == "planned" for value in variable.accepts)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", False), ("", False), ("false", False), ("False", False)]
    + [(text, True) for text in ("1", "true", "FALSE", "no", "off", " ", "00")],
)
def test_booleans_are_false_for_four_texts_only(monkeypatch: pytest.MonkeyPatch, text: str, value: bool) -> None:
    monkeypatch.setenv("DEEPINFER_STRICT_KERNELS", text)
    assert env.get("DEEPINFER_STRICT_KERNELS") is value


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("GLOO_TIMEOUT", "1", 1),
        ("SAMPLER_FORCE_TOPK", "16384", 16384),
        ("LOGGING_INTERVAL_STEP", "-3", -3),
        ("NUM_STATE_SLOTS_RATIO", "1", 1.0),
        ("XGRAMMAR_TIMEOUT", "1e-3", 0.001),
        ("HF_MODEL_DIR", "", None),
        ("HF_MODEL_DIR", "/a b", Path("/a b")),
        ("PIN", " rope=cuda ", "rope=cuda"),
        ("YOCO_PREFILL_TRUNCATION_MODE", "mask", "mask"),
        ("DFLASH_CONFIDENCE_HEAD_TEMPERATURE", "0.5,1,2", (0.5, 1.0, 2.0)),
        ("DECODE_TOKEN_BLACKLIST", "0..3,7,10..12", (range(4), range(7, 8), range(10, 13))),
        ("DECODE_TOKEN_BLACKLIST", "5..5", (range(5, 6),)),
        ("DECODE_TOKEN_BLACKLIST", " ", ()),
        ("DECODE_TOKEN_BLACKLIST", "0..99999999999999", (range(100000000000000),)),
    ],
)
def test_texts_that_parse(monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: Any) -> None:
    monkeypatch.setenv(f"DEEPINFER_{name}", text)
    assert env.get(f"DEEPINFER_{name}") == value


def test_a_path_expands_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    monkeypatch.setenv("DEEPINFER_CACHE_DIR", "~/c")
    assert env.get("DEEPINFER_CACHE_DIR") == Path("/home/x/c")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("GLOO_TIMEOUT", "0"),
        ("GLOO_TIMEOUT", ""),
        ("GLOO_TIMEOUT", "1_0"),
        ("GLOO_TIMEOUT", "1.5"),
        ("GLOO_TIMEOUT", "0x10"),
        ("SAMPLER_FORCE_TOPK", "16385"),
        ("SAMPLER_FORCE_TOPK", "-1"),
        ("NUM_STATE_SLOTS_RATIO", "0.99"),
        ("NUM_STATE_SLOTS_RATIO", "nan"),
        ("NUM_STATE_SLOTS_RATIO", "inf"),
        ("XGRAMMAR_TIMEOUT", "0"),
        ("YOCO_PREFILL_TRUNCATION_MODE", "Mask"),
        ("DFLASH_CONFIDENCE_HEAD_TEMPERATURE", "1,,2"),
        ("DFLASH_CONFIDENCE_HEAD_TEMPERATURE", "0"),
        ("DECODE_TOKEN_BLACKLIST", "3..1"),
        ("DECODE_TOKEN_BLACKLIST", "1,1"),
        ("DECODE_TOKEN_BLACKLIST", "0..3,3"),
        ("DECODE_TOKEN_BLACKLIST", "1,"),
        ("DECODE_TOKEN_BLACKLIST", "-1"),
        ("DECODE_TOKEN_BLACKLIST", "1...3"),
        ("PROFILE_HTTP_PORT_BASE", "65536"),
    ],
)
def test_texts_that_do_not_parse_name_the_variable(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.setenv(f"DEEPINFER_{name}", text)
    with pytest.raises(InvalidArgumentError) as caught:
        env.get(f"DEEPINFER_{name}")
    assert str(caught.value).startswith(f"DEEPINFER_{name}: got {text!r}")
    with pytest.raises(InvalidArgumentError, match=f"DEEPINFER_{name}"):
        env.check({f"DEEPINFER_{name}": text})


def test_read_once_until_rearmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPINFER_GLOO_TIMEOUT", "5")
    assert env.get("DEEPINFER_GLOO_TIMEOUT") == 5
    monkeypatch.setenv("DEEPINFER_GLOO_TIMEOUT", "6")
    assert env.get("DEEPINFER_GLOO_TIMEOUT") == 5
    env.rearm("DEEPINFER_STRICT_KERNELS")
    assert env.get("DEEPINFER_GLOO_TIMEOUT") == 5, "rearming one variable leaves the others"
    env.rearm("DEEPINFER_GLOO_TIMEOUT")
    assert env.get("DEEPINFER_GLOO_TIMEOUT") == 6


def test_a_wrong_text_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPINFER_GLOO_TIMEOUT", "soon")
    for _ in range(2):
        with pytest.raises(InvalidArgumentError):
            env.get("DEEPINFER_GLOO_TIMEOUT")


def test_set_default_gives_way_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "DEEPINFER_ZERO_OVERHEAD_SCHEDULING"
    monkeypatch.delenv(name, raising=False)
    assert env.get(name) is None
    env.set_default(name, False)
    assert env.get(name) is False
    monkeypatch.setenv(name, "1")
    env.rearm(name)
    assert env.get(name) is True


def test_unknown_names_are_errors_in_code() -> None:
    for call in (env.get, env.rearm, env.is_set, lambda name: env.set_default(name, 1)):
        with pytest.raises(InvalidArgumentError, match="closest known name is DEEPINFER_GLOO_TIMEOUT"):
            call("DEEPINFER_GLOO_TIMEOUTS")


def test_check_warns_of_unknown_variables_with_the_closest_name() -> None:
    with pytest.warns(env.UnknownVariableWarning, match="DEEPINFER_STRICT_KERNEL is not known"):
        messages = env.check({"DEEPINFER_STRICT_KERNEL": "1", "OTHER": "x"})
    assert len(messages) == 1 and messages[0].endswith("DEEPINFER_STRICT_KERNELS")


@pytest.mark.parametrize(
    "name, said",
    [
        ("DEEPINFER_NEXTN", "the closest known name is DEEPINFER_USE_NEXTN_DECODE"),
        ("DEEPINFER_NOPE", "`deepinfer env` lists the known names"),
        ("DEEPINFER_", "`deepinfer env` lists the known names"),
    ],
)
def test_only_a_close_name_is_proposed(name: str, said: str) -> None:
    with pytest.warns(env.UnknownVariableWarning):
        assert env.check({name: "1"})[0].endswith(said)


def test_check_refuses_planned_variables_that_would_have_no_effect() -> None:
    with pytest.raises(NotSupportedError, match=r"DEEPINFER_ENABLE_MTP_VARLEN=1 .* verification scheduled"):
        env.check({"DEEPINFER_ENABLE_MTP_VARLEN": "1"})
    with pytest.raises(NotSupportedError, match="XGRAMMAR_DEBUG"):
        env.check({"DEEPINFER_XGRAMMAR_DEBUG": "1"})


def test_check_accepts_planned_variables_that_describe_today() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        today = {"ENABLE_MTP_VARLEN": "0", "ENFORCE_EAGER": "1", "XGRAMMAR_DEBUG": "0"}
        assert env.check({f"DEEPINFER_{name}": text for name, text in today.items()}) == []


def test_check_reads_the_process_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPINFER_SAMPLER_FORCE_TOPK", "many")
    with pytest.raises(InvalidArgumentError, match="DEEPINFER_SAMPLER_FORCE_TOPK"):
        env.check()


def test_describe_has_a_row_per_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPINFER_PIN", "rope=cuda")
    rows = {row["name"]: row for row in env.describe()}
    assert set(rows) == set(VARIABLES)
    assert rows["DEEPINFER_PIN"]["set"] == "rope=cuda" and rows["DEEPINFER_PIN"]["default"] == "unset"
    assert rows["DEEPINFER_BATCH_INVARIANT"]["default"] == "1"
    assert (
        rows["DEEPINFER_USE_NEXTN_DECODE"] | {"default": "5", "status": "used", "upstream": True}
        == (rows["DEEPINFER_USE_NEXTN_DECODE"])
    )
    assert rows["DEEPINFER_CACHE_DIR"]["upstream"] is False
    assert all(row["default"] and row["allowed"] for row in rows.values())


def test_a_home_that_nobody_has_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="DEEPINFER_CACHE_DIR.*home directory"):
        VARIABLES["DEEPINFER_CACHE_DIR"].parse("~no-such-user-here/cache")
