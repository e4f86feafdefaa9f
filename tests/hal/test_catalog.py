"""Finding, choosing and loading backends: plug-ins by entry point, refusals by name, known-answer tests.

Plug-ins are real modules with real metadata: a folder on `sys.path` holds them and one `dist-info` per distribution.
"""

from __future__ import annotations

import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from deepinfer.hal import catalog as module
from deepinfer.hal import env
from deepinfer.hal.backend import Available, Backend, Unavailable, canonical, known_answer
from deepinfer.hal.catalog import BUILT_IN, Catalog, PluginWarning
from deepinfer.hal.device import Detected, Device
from deepinfer.hal.errors import BackendError, InvalidArgumentError, SelfTestError
from deepinfer.hal.graph import GraphsUnavailable, NoGraphReason
from deepinfer.hal.null import NullBackend
from deepinfer.hal.registry import REGISTRY, Kernel, Registry

CPU = Device("cpu")

BACKEND = """
    from deepinfer.hal.backend import Available, Backend, Unavailable
    from deepinfer.hal.contract import CONTRACT_VERSION
    from deepinfer.hal.registry import REGISTRY, Kernel

    class Plugin(Backend):
        name = {name!r}
        contract_version = {version}
        loads = 0
        def load(self):
            type(self).loads += 1
            REGISTRY.add(Kernel("plugin_op", 0, self.name, lambda *a: a[-1], source="triton"))

    backend = Plugin()
"""

KERNELS = """
    from deepinfer.hal.backend import KernelPlugin
    from deepinfer.hal.contract import CONTRACT_VERSION
    from deepinfer.hal.registry import REGISTRY, Kernel

    def load():
        REGISTRY.add(Kernel("plugin_op", 0, "reference", lambda *a: a[-1], name={name!r}, priority=7))
        {after}

    kernels = KernelPlugin({name!r}, {version}, load)
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Write a module and the metadata of a distribution that announces it, as an installed wheel would have them."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = []

    def write(distribution: str, module_name: str, source: str, *points: tuple[str, str, str]) -> None:
        (tmp_path / f"{module_name}.py").write_text(textwrap.dedent(source))
        modules.append(module_name)
        info = tmp_path / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        lines = [f"[{group}]\n{name} = {target}\n" for group, name, target in points]
        (info / "entry_points.txt").write_text("\n".join(lines))

    before = set(REGISTRY.kernels())
    yield write
    for name in modules:
        sys.modules.pop(name, None)
    for kernel in set(REGISTRY.kernels()) - before:
        if kernel.op == "plugin_op":
            REGISTRY.remove(kernel)


def plugin_kernels() -> list[str]:
    return sorted(kernel.id for kernel in REGISTRY.kernels("plugin_op"))


def backend_source(name: str, version: str = "CONTRACT_VERSION", extra: str = "") -> str:
    return textwrap.dedent(BACKEND.format(name=name, version=version)) + textwrap.dedent(extra)


def test_the_reference_is_built_in() -> None:
    entry = Catalog().entries()["reference"]
    assert entry.target == "deepinfer.backends.reference:backend" == BUILT_IN["reference"]


@pytest.mark.parametrize(
    ("name", "backend"), [("cpu", "reference"), ("nvidia", "cuda"), ("cuda", "cuda"), ("npu", "ascend"), ("x", "x")]
)
def test_both_spellings_name_a_backend(name: str, backend: str) -> None:
    assert canonical(name) == backend


def test_an_unknown_backend_lists_the_known_ones() -> None:
    with pytest.raises(BackendError, match=r"backend 'tpu' is not part of this installation; known: .*reference"):
        Catalog().get("tpu")


def test_an_out_of_tree_backend_loads_by_entry_point(install: Install) -> None:
    install("acme-hal", "acme_hal", backend_source("acme"), ("deepinfer.backends", "acme", "acme_hal:backend"))
    catalog = Catalog()
    assert catalog.entries()["acme"].origin == "acme-hal"
    assert "acme_hal" not in sys.modules, "discovery imports no plug-in"
    backend = catalog.load("acme")
    assert backend.name == "acme" and plugin_kernels() == ["acme"]
    assert catalog.loaded() == ("acme", "reference"), "the reference stands behind every backend"
    assert catalog.load("acme") is backend and backend.loads == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", ["-1", "99"])
def test_another_contract_version_is_refused(install: Install, version: str) -> None:
    source = backend_source("acme", version)
    install("acme-hal", "acme_old", source, ("deepinfer.backends", "acme", "acme_old:backend"))
    catalog = Catalog()
    with pytest.raises(BackendError, match=rf"'acme' .*acme-hal.*implements op contract version {version}") as caught:
        catalog.load("acme")
    assert "accepts" in str(caught.value) and plugin_kernels() == []
    assert catalog.load("reference").name == "reference"


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("import no_such_package_of_ours", "acme_bad:backend", "ModuleNotFoundError: No module named 'no_such_package"),
        (
            "raise RuntimeError('libacme.so: wrong ELF class')",
            "acme_bad:backend",
            "RuntimeError: libacme.so: wrong ELF",
        ),
        ("x = (", "acme_bad:backend", "SyntaxError"),
        ("", "acme_bad:backend", "has no attribute 'backend'"),
        ("backend = 3", "acme_bad:backend", "the object is a int, not a Backend"),
        (backend_source("other"), "acme_bad:backend", "the object calls itself 'other'"),
    ],
)
def test_a_broken_plug_in_is_reported_by_name_and_harms_nobody(
    install: Install, source: str, target: str, words: str
) -> None:
    install("acme-hal", "acme_bad", source, ("deepinfer.backends", "acme", target))
    install("good-hal", "good_hal", backend_source("good"), ("deepinfer.backends", "good", "good_hal:backend"))
    catalog = Catalog()
    for _ in range(2):
        with pytest.raises(BackendError, match=r"'acme' \(acme_bad:backend of acme-hal\) is refused") as caught:
            catalog.load("acme")
        assert words in str(caught.value)
    verdict = catalog.probe("acme")
    assert isinstance(verdict, Unavailable) and words in verdict.reason
    assert catalog.load("good").name == "good" and catalog.load("reference").name == "reference"


def test_two_plug_ins_of_one_name_are_both_refused(install: Install) -> None:
    install("acme-one", "acme_one", backend_source("acme"), ("deepinfer.backends", "acme", "acme_one:backend"))
    install("acme-two", "acme_two", backend_source("acme"), ("deepinfer.backends", "acme", "acme_two:backend"))
    with pytest.raises(BackendError, match="announced twice") as caught:
        Catalog().load("acme")
    assert all(name in str(caught.value) for name in ("acme-one", "acme_one", "acme-two", "acme_two"))
    assert plugin_kernels() == []


def test_built_in_names_and_aliases_cannot_be_taken(install: Install) -> None:
    install(
        "thief",
        "thief_hal",
        backend_source("reference"),
        ("deepinfer.backends", "reference", "thief_hal:backend"),
    )
    install("thief-two", "thief_two", backend_source("cpu"), ("deepinfer.backends", "cpu", "thief_two:backend"))
    with pytest.warns(PluginWarning) as caught:
        catalog = Catalog()
        assert type(catalog.get("reference")).__module__ == "deepinfer.backends.reference"
    text = " ".join(str(w.message) for w in caught)
    assert "'reference' of thief is refused: the name is taken" in text
    assert "'cpu' of thief-two is refused: the name is another spelling of 'reference'" in text


def test_metadata_of_this_repository_is_no_duplicate(install: Install) -> None:
    install("self", "unused_module", "", ("deepinfer.backends", "reference", "deepinfer.backends.reference:backend"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Catalog().get("reference").name == "reference"


def test_a_failing_load_leaves_no_kernel_behind_and_stays_failed(install: Install) -> None:
    extra = """
        class Broken(Plugin):
            def load(self):
                super().load()
                raise OSError("libacme.so is truncated")
        backend = Broken()
    """
    source = backend_source("acme", extra=extra)
    install("acme-hal", "acme_half", source, ("deepinfer.backends", "acme", "acme_half:backend"))
    catalog = Catalog()
    for _ in range(2):
        with pytest.raises(BackendError, match="'acme'.*OSError: libacme.so is truncated"):
            catalog.load("acme")
    assert plugin_kernels() == [] and "acme" not in catalog.loaded()
    assert catalog.load("reference").name == "reference"


def test_kernels_alone_can_be_plugged_in(install: Install) -> None:
    source = KERNELS.format(name="faster", version="CONTRACT_VERSION", after="")
    install("faster-kernels", "faster_kernels", source, ("deepinfer.kernels", "faster", "faster_kernels:kernels"))
    catalog = Catalog()
    catalog.load("reference")
    assert plugin_kernels() == ["reference:faster"]
    catalog.load("reference")
    assert catalog.plugins()["faster"].error is None


@pytest.mark.parametrize(
    ("version", "after", "words"),
    [
        ("77", "", "implements op contract version 77"),
        ("CONTRACT_VERSION", "raise ValueError('no such op')", "load failed: ValueError: no such op"),
        ("undefined", "", "import failed: NameError"),
    ],
)
def test_refused_kernels_warn_and_harm_nobody(install: Install, version: str, after: str, words: str) -> None:
    source = KERNELS.format(name="slower", version=version, after=after)
    install("slower-kernels", "slower_kernels", source, ("deepinfer.kernels", "slower", "slower_kernels:kernels"))
    good = KERNELS.format(name="good", version="CONTRACT_VERSION", after="")
    install("x-good-kernels", "good_kernels", good, ("deepinfer.kernels", "good", "good_kernels:kernels"))
    catalog = Catalog()
    with pytest.warns(PluginWarning, match="kernel plug-in 'slower' of slower-kernels"):
        catalog.load("reference")
    assert words in str(catalog.plugins()["slower"].error)
    assert plugin_kernels() == ["reference:good"]


def test_kernels_of_a_backend_that_cannot_run_are_registered_once_and_probed_when_it_is_loaded(
    install: Install,
) -> None:
    extra = """
        class Away(Plugin):
            def probe(self):
                return Unavailable("no board")
        backend = Away()
    """
    source = backend_source("acme", extra=extra)
    install("acme-hal", "acme_away", source, ("deepinfer.backends", "acme", "acme_away:backend"))
    catalog = Catalog()
    for _ in range(2):
        assert catalog.register("acme").loads == 1  # type: ignore[attr-defined]
    assert plugin_kernels() == ["acme"]
    with pytest.raises(BackendError, match="'acme' is not available here: no board"):
        catalog.load("acme")
    catalog.get("acme").probe = lambda: Available()  # type: ignore[method-assign]
    assert catalog.load("acme").loads == 1 and plugin_kernels() == ["acme"]  # type: ignore[attr-defined]


# ---- backends of this process -----------------------------------------------------------------------------------


class Fake(NullBackend):
    name = "fake"
    verdict: Available | Unavailable = Available("here")
    fault: Exception | None = None

    def __init__(self) -> None:
        super().__init__()
        self.loads = 0
        self.tested: list[Device] = []

    def probe(self) -> Available | Unavailable:
        return self.verdict

    def load(self) -> None:
        time.sleep(0.02)  # gives another thread the time to come in
        self.loads += 1

    def self_test(self, device: Device) -> None:
        self.tested.append(device)
        if self.fault is not None:
            raise self.fault


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    monkeypatch.delenv("DEEPINFER_ACCELERATOR", raising=False)
    env.rearm("DEEPINFER_ACCELERATOR")
    monkeypatch.setattr(module, "detect", list)
    monkeypatch.setattr(module, "entry_points", lambda group: ())  # of what is installed, the tests' own alone
    yield Catalog({"reference": BUILT_IN["reference"]}, Registry())
    env.rearm("DEEPINFER_ACCELERATOR")


def add(catalog: Catalog, **changes: Any) -> Fake:
    backend = Fake()
    for name, value in changes.items():
        setattr(backend, name, value)
    catalog.add(backend)
    return backend


def test_loading_is_idempotent_and_thread_safe(catalog: Catalog) -> None:
    backend = add(catalog)
    threads = [threading.Thread(target=catalog.load, args=("fake",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert backend.loads == 1 and backend.tested == [CPU]
    catalog.load("fake", Device("meta"))
    assert backend.loads == 1 and backend.tested == [CPU, Device("meta")], "a new device is tested, once"


def test_a_name_is_added_once(catalog: Catalog) -> None:
    add(catalog)
    for name in ("fake", "reference", "cpu"):
        with pytest.raises(BackendError, match="exists"):
            add(catalog, name=name)
    with pytest.raises(BackendError, match="contract version 5"):
        add(catalog, name="other", contract_version=5)


def test_an_unavailable_backend_says_what_is_missing_and_how_to_get_it(catalog: Catalog) -> None:
    add(catalog, verdict=Unavailable("CANN is not installed", "install CANN 9.2"))
    for call in (catalog.load, catalog.select):
        with pytest.raises(BackendError, match="'fake' is not available here: CANN is not installed; install CANN 9.2"):
            call("fake")


def test_a_probe_that_fails_counts_as_unavailable(catalog: Catalog) -> None:
    backend = add(catalog)
    backend.probe = lambda: 1 // 0  # type: ignore[method-assign, assignment, return-value]
    assert "ZeroDivisionError" in str(catalog.probe("fake"))
    with pytest.raises(BackendError, match="its probe failed: ZeroDivisionError"):
        catalog.load("fake")


def test_a_wrong_answer_names_the_chip_found_and_wanted(catalog: Catalog) -> None:
    class WrongChip(Fake):
        def self_test(self, device: Device) -> None:
            got, want = torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0])
            known_answer("add", got, want, device=device, arch_found="ascend950", arch_wanted="ascend910b")

    catalog.add(WrongChip())
    with pytest.raises(SelfTestError, match="'add' on cpu gave wrong bits.*device is ascend950.*for ascend910b"):
        catalog.load("fake")


def test_a_fault_in_the_self_test_names_the_chip_found_and_wanted(catalog: Catalog) -> None:
    add(catalog, fault=RuntimeError("no kernel image is available for execution on the device"))
    catalog._registry.add(Kernel("x", 0, "fake", print, archs=("sm_100", "sm_90")))
    with pytest.raises(SelfTestError, match="no kernel image.*; the device is .*, the kernels are for sm_100, sm_90"):
        catalog.load("fake")


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (torch.tensor([1.0, 2.0], dtype=torch.float64), "gave torch.float64"),
        (torch.tensor([1.0]), r"gave torch.float32 \(1,\), wanted torch.float32 \(2,\)"),
        (torch.tensor([1.0, float("nan")]), "wrong bits in"),
        (torch.tensor([-0.0, 2.0]), "wrong bits in 1 of 8 bytes"),
    ],
)
def test_known_answers_are_compared_bit_for_bit(got: torch.Tensor, words: str) -> None:
    want = torch.tensor([0.0, 2.0])
    known_answer("same", want.clone(), want, device=CPU, arch_found="a", arch_wanted="b")
    with pytest.raises(SelfTestError, match=words):
        known_answer("same", got, want, device=CPU, arch_found="a", arch_wanted="b")


# ---- selection --------------------------------------------------------------------------------------------------


def test_the_cpu_is_the_default_where_nothing_is_found(catalog: Catalog) -> None:
    selection = catalog.select()
    assert (selection.backend.name, selection.asked_by, selection.passed_over) == ("reference", "detection", ())


def test_an_argument_beats_the_environment(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    add(catalog)
    monkeypatch.setenv("DEEPINFER_ACCELERATOR", "fake")
    env.rearm("DEEPINFER_ACCELERATOR")
    assert (catalog.select().backend.name, catalog.select().asked_by) == ("fake", "DEEPINFER_ACCELERATOR")
    assert (catalog.select("cpu").backend.name, catalog.select("cpu").asked_by) == ("reference", "argument")


def test_what_was_asked_for_is_never_replaced(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPINFER_ACCELERATOR", "nvidia")
    env.rearm("DEEPINFER_ACCELERATOR")
    with pytest.raises(BackendError, match="'nvidia' is not part of this installation"):
        catalog.select()


def test_a_detected_accelerator_is_chosen_if_it_can_run(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "detect", lambda: [Detected("npu", 1, "/dev/davinci0"), Detected("cuda", 1, "/dev/n")])
    selection = catalog.select()
    assert selection.backend.name == "reference"
    assert len(selection.passed_over) == 2 and "ascend (/dev/davinci0 is there)" in selection.passed_over[0]
    add(catalog, name="cuda")
    assert catalog.select().backend.name == "cuda" and len(catalog.select().passed_over) == 1
    add(catalog, name="ascend", verdict=Unavailable("no CANN"))
    assert catalog.select().backend.name == "cuda" and "no CANN" in catalog.select().passed_over[0]


def test_activation_makes_a_backends_kernels_the_first_choice(catalog: Catalog) -> None:
    add(catalog)
    assert catalog.activate("fake").name == "fake"
    assert catalog._registry.active == "fake"
    assert catalog._registry.arch == catalog.get("fake").capability(CPU).arch


def test_the_process_has_one_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "detect", list)
    assert module.select_backend("cpu").backend is module.CATALOG.get("reference")
    assert module.load_backend("cpu").name == "reference" and REGISTRY.active == "reference"


# ---- the backends that come with the package --------------------------------------------------------------------


def test_the_base_class_has_defaults_for_everything_but_a_name() -> None:
    base = Backend()
    assert isinstance(base.probe(), Available) and base.devices() == (CPU,)
    absent = base.graphs(CPU)
    assert isinstance(absent, GraphsUnavailable) and absent.reason is NoGraphReason.NOT_BUILT
    assert base.transport(CPU).backends == base.capability(CPU).communicator == "gloo"
    base.load()
    base.self_test(CPU)


def test_the_null_backend_is_not_registered_by_default() -> None:
    assert "null" not in Catalog().entries()


def test_the_null_backend_registers_what_it_is_asked_for(catalog: Catalog) -> None:
    backend = NullBackend((("some_op", 3),))
    catalog.add(backend)
    catalog.load("null")
    try:
        (kernel,) = REGISTRY.kernels("some_op")
        out = torch.ones(2)
        assert (kernel.version, kernel.own) == (3, False) and kernel.fn(torch.zeros(2), out) is out
        assert isinstance(backend.graphs(CPU), GraphsUnavailable)
    finally:
        REGISTRY.remove(kernel)


def test_the_reference_passes_its_self_test_and_notices_a_wrong_cast(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = Catalog().load("reference")
    reference.self_test(CPU)
    from deepinfer.backends.reference import quant

    right = quant.quant_fp8

    def away_from_zero(x: torch.Tensor, out: Any) -> tuple[torch.Tensor, torch.Tensor]:
        codes, scale = right(x, out)
        codes = codes.view(torch.uint8).clone()
        codes[0, 1] = 0x59  # 17 -> 18, as a cast that rounds ties away from zero gives
        return codes.view(torch.float8_e4m3fn), scale

    monkeypatch.setattr(quant, "quant_fp8", away_from_zero)
    with pytest.raises(SelfTestError, match="'E4M3 codes' on cpu"):
        reference.self_test(CPU)


def test_the_reference_says_why_it_has_no_graphs() -> None:
    reference = Catalog().get("reference")
    kinds = {kind: reference.graphs(Device(kind)) for kind in ("cpu", "cuda")}
    assert [found.reason for found in kinds.values() if isinstance(found, GraphsUnavailable)] == [
        NoGraphReason.NO_DEVICE_QUEUE,
        NoGraphReason.FALLBACK_KERNELS,
    ]
    assert not reference.capability(CPU).graphs


def test_a_device_that_is_not_there_is_refused_before_it_is_used() -> None:
    if torch.cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    with pytest.raises((InvalidArgumentError, SelfTestError), match="cuda:0"):
        Catalog().load("reference", Device("cuda"))
