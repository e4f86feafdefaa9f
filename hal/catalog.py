"""Finding, checking, choosing and loading backends.

Backends come from entry points (`deepinfer.backends`, `deepinfer.kernels`), those of this repository included; a
built-in list stands in for them where the package runs from a source tree without installed metadata. A plug-in that
cannot be imported, implements another contract, or takes a name that is taken is refused by name and leaves the others
alone.
"""

from __future__ import annotations

import importlib
import logging
import threading
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from . import env
from .backend import ALIASES, Available, Backend, KernelPlugin, Unavailable, canonical, self_test_error
from .contract import check_contract
from .device import Device, detect
from .errors import BackendError, DeepInferError, SelfTestError
from .registry import REFERENCE, REGISTRY, Registry

BACKENDS_GROUP = "deepinfer.backends"
KERNELS_GROUP = "deepinfer.kernels"

_PACKAGE = __package__.rpartition(".")[0]

# The entry points of this repository, for a source tree without metadata.
BUILT_IN: Mapping[str, str] = {
    "reference": f"{_PACKAGE}.backends.reference:backend",
    "cuda": f"{_PACKAGE}.backends.cuda:backend",
    "ascend": f"{_PACKAGE}.backends.ascend:backend",
}

log = logging.getLogger(__name__)


class PluginWarning(UserWarning):
    """A plug-in is refused; the others work."""


@dataclass
class Entry:
    """One announced backend or kernel plug-in.

    Attributes:
        name: name of the entry point.
        target: 'module:object'.
        origin: distribution that announces it, or 'built-in'.
        error: why it is refused; None while nothing speaks against it.
    """

    name: str
    target: str
    origin: str
    error: str | None = None
    _object: Any = field(default=None, repr=False)

    def resolve(self, kind: type[Any]) -> Any:
        """Import the object behind the entry. A failure is kept in `error` and raised again each time.

        Raises:
            BackendError: names the plug-in, where it comes from and what is wrong.
        """
        if self.error is None and self._object is None:
            self._object, self.error = self._import(kind)
        if self.error is not None:
            raise BackendError(f"{self.name!r} ({self.target} of {self.origin}) is refused: {self.error}")
        return self._object

    def _import(self, kind: type[Any]) -> tuple[Any, str | None]:
        module, _, attribute = self.target.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in filter(None, attribute.split(".")):
                found = getattr(found, part)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a plug-in may raise anything while it is imported
            return None, f"import failed: {type(error).__name__}: {error}"
        if not isinstance(found, kind):
            return None, f"the object is a {type(found).__name__}, not a {kind.__name__}"
        if found.name != self.name:
            return None, f"the object calls itself {found.name!r}"
        try:
            check_contract(self.name, found.contract_version)
        except BackendError as error:
            return None, str(error)
        return found, None


@dataclass(frozen=True)
class Selection:
    """The backend that was chosen.

    Attributes:
        backend: the backend.
        asked_by: 'argument', 'DEEPINFER_ACCELERATOR' or 'detection'.
        passed_over: accelerators that were detected and cannot be used, each with the reason.
    """

    backend: Backend
    asked_by: str
    passed_over: tuple[str, ...] = ()


class Catalog:
    """The backends and kernel plug-ins of an installation. Thread-safe; loading is idempotent."""

    def __init__(
        self,
        built_in: Mapping[str, str] = BUILT_IN,
        registry: Registry = REGISTRY,
    ) -> None:
        self._built_in = built_in
        self._registry = registry
        self._lock = threading.RLock()
        self._backends: dict[str, Entry] | None = None
        self._plugins: dict[str, Entry] | None = None
        self._loaded: set[str] = set()
        self._able: set[str] = set()  # of those, the ones whose probe said yes
        self._plugins_loaded = False
        self._tested: set[tuple[str, Device]] = set()

    def entries(self) -> dict[str, Entry]:
        """Announced backends by name. Imports none."""
        with self._lock:
            if self._backends is None:
                self._backends = _collect(entry_points(group=BACKENDS_GROUP), self._built_in, ALIASES)
            return self._backends

    def plugins(self) -> dict[str, Entry]:
        """Announced kernel plug-ins by name. Imports none."""
        with self._lock:
            if self._plugins is None:
                self._plugins = _collect(entry_points(group=KERNELS_GROUP), {}, {})
            return self._plugins

    def get(self, name: str) -> Backend:
        """The backend of a name, imported but not loaded.

        Raises:
            BackendError: unknown name (the known ones are listed), or a refused plug-in.
        """
        entry = self.entries().get(canonical(name))
        if entry is None:
            known = ", ".join(self.entries())
            raise BackendError(f"backend {name!r} is not part of this installation; known: {known}")
        with self._lock:
            found = entry.resolve(Backend)
        assert isinstance(found, Backend)
        return found

    def add(self, backend: Backend) -> None:
        """Add a backend object of this process, as an entry point would.

        Raises:
            BackendError: the name is taken, or it implements another contract.
        """
        check_contract(backend.name, backend.contract_version)
        with self._lock:
            if canonical(backend.name) in self.entries():
                raise BackendError(f"a backend named {backend.name!r} exists")
            self.entries()[backend.name] = Entry(
                backend.name, type(backend).__qualname__, "this process", None, backend
            )

    def probe(self, name: str) -> Available | Unavailable:
        """Whether a backend can run here; a refused plug-in is unavailable with that reason."""
        try:
            return self.get(name).probe()
        except DeepInferError as error:
            return Unavailable(str(error))
        except Exception as error:
            return Unavailable(f"the probe of {name!r} failed: {type(error).__name__}: {error}")

    def load(self, name: str, device: Device | None = None) -> Backend:
        """Load a backend and the reference behind it, and run the known-answer tests.

        Kernel plug-ins load with the first backend. A second call does nothing but test a device that is new.

        Args:
            name: backend or accelerator.
            device: the device that will be used; by default all that the backend lists are tested.

        Raises:
            BackendError: unknown, refused, unavailable (with the remedy), or its kernels cannot be registered.
            SelfTestError: a device gives wrong answers; names the chip found and the one wanted.
        """
        backend = self.get(name)
        with self._lock:
            if backend.name != REFERENCE:
                self._load_kernels(self.get(REFERENCE))
            self._load_kernels(backend)
            self._load_plugins()
            for tested in (device,) if device is not None else backend.devices():
                self._self_test(backend, tested)
        return backend

    def register(self, name: str) -> Backend:
        """Register a backend's kernels, also where it cannot run; for reports, which say what there is and run none.

        Nothing is probed, tested or activated; `load` does that when it is called.

        Raises:
            BackendError: unknown, refused, or its kernels cannot be registered.
        """
        backend = self.get(name)
        with self._lock:
            self._register(backend)
        return backend

    def loaded(self) -> tuple[str, ...]:
        """Names of the backends whose kernels are registered."""
        return tuple(sorted(self._loaded))

    def activate(self, name: str, device: Device | None = None) -> Backend:
        """Load a backend and make its kernels the first choice on the chip of `device` (its first one by default)."""
        backend = self.load(name, device)
        first = backend.devices()[0] if device is None else device
        self._registry.activate(backend.name, backend.capability(first).arch)
        return backend

    def select(self, name: str | None = None) -> Selection:
        """Choose a backend: by argument, else DEEPINFER_ACCELERATOR, else by what is detected, else the reference.

        Raises:
            BackendError: the named backend is unknown, refused or unavailable. Detection alone never fails: an
                accelerator whose backend cannot run is passed over with a warning.
        """
        setting = env.get("DEEPINFER_ACCELERATOR")
        if name or setting:
            asked_by = "argument" if name else "DEEPINFER_ACCELERATOR"
            backend = self.get(name or setting)
            _require(backend)
            return Selection(backend, asked_by)
        passed_over: list[str] = []
        for found in detect():
            candidate = canonical({"npu": "ascend"}.get(found.type, found.type))
            verdict = self.probe(candidate)
            if isinstance(verdict, Available):
                return Selection(self.get(candidate), "detection", tuple(passed_over))
            passed_over.append(f"{candidate} ({found.evidence} is there): {verdict}")
            log.warning("accelerator passed over: %s", passed_over[-1])
        return Selection(self.get(REFERENCE), "detection", tuple(passed_over))

    # ---- loading ----------------------------------------------------------------------------------------------

    def _load_kernels(self, backend: Backend) -> None:
        if backend.name in self._loaded & self._able:
            return
        _require(backend)
        self._register(backend)
        self._able.add(backend.name)

    def _register(self, backend: Backend) -> None:
        if backend.name in self._loaded:
            return
        with _Rollback(self._registry) as rollback:
            try:
                backend.load()
            except Exception as error:
                # Modules that were imported stay imported and would not register again: a second try would find
                # half a backend. So the failure is final.
                reason = f"its kernels cannot be loaded: {type(error).__name__}: {error}"
                self.entries()[backend.name].error = reason
                raise BackendError(f"backend {backend.name!r}: {reason}") from error
            rollback.keep = True
        self._loaded.add(backend.name)

    def _load_plugins(self) -> None:
        if self._plugins_loaded:
            return
        self._plugins_loaded = True
        for entry in self.plugins().values():
            with _Rollback(self._registry) as rollback:
                try:
                    entry.resolve(KernelPlugin).load()
                    rollback.keep = True
                except Exception as error:
                    entry.error = entry.error or f"load failed: {type(error).__name__}: {error}"
                    warnings.warn(f"kernel plug-in {entry.name!r} of {entry.origin}: {entry.error}", PluginWarning, 3)

    def _self_test(self, backend: Backend, device: Device) -> None:
        if (backend.name, device) in self._tested:
            return
        try:
            backend.self_test(device)
        except SelfTestError:
            raise
        except Exception as error:
            arch = backend.capability(device).arch
            archs = sorted({a for k in self._registry.kernels() if k.backend == backend.name for a in k.archs})
            raise self_test_error(
                backend.name,
                f"failed: {type(error).__name__}: {error}",
                device=device,
                arch_found=arch,
                arch_wanted=", ".join(archs) or "any chip",
            ) from error
        self._tested.add((backend.name, device))


class _Rollback:
    """Takes out again the kernels that were registered in a with block, unless `keep` is set."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.keep = False

    def __enter__(self) -> _Rollback:
        self._before = {id(kernel) for kernel in self._registry.kernels()}
        return self

    def __exit__(self, *_: object) -> None:
        if not self.keep:
            for kernel in self._registry.kernels():
                if id(kernel) not in self._before:
                    self._registry.remove(kernel)


def _collect(
    announced: Iterable[EntryPoint], built_in: Mapping[str, str], aliases: Mapping[str, str]
) -> dict[str, Entry]:
    """Entries by name. Built-in names cannot be taken; of two plug-ins with one name neither is used."""
    found = {name: Entry(name, target, "built-in") for name, target in built_in.items()}
    for point in announced:
        origin = point.dist.name if point.dist is not None else "an unnamed distribution"
        meant = aliases.get(point.name, point.name)
        known = found.get(point.name)
        if meant != point.name:
            message = f"plug-in {point.name!r} of {origin} is refused: the name is another spelling of {meant!r}"
            warnings.warn(message, PluginWarning, 4)
        elif known is None:
            found[point.name] = Entry(point.name, point.value, origin)
        elif known.target == point.value:
            continue  # the same object, announced by metadata as well
        elif known.origin == "built-in":
            message = f"plug-in {point.name!r} of {origin} is refused: the name is taken by a built-in"
            warnings.warn(message, PluginWarning, 4)
        else:
            here = f"{known.origin} ({known.target}) and {origin} ({point.value})"
            known.error = f"the name is announced twice, by {here}"
    return found


def _require(backend: Backend) -> None:
    try:
        verdict = backend.probe()
    except Exception as error:
        verdict = Unavailable(f"its probe failed: {type(error).__name__}: {error}")
    if isinstance(verdict, Unavailable):
        raise BackendError(f"backend {backend.name!r} is not available here: {verdict}")


CATALOG = Catalog()


def select_backend(name: str | None = None) -> Selection:
    """`Catalog.select` of the process's catalog."""
    return CATALOG.select(name)


def load_backend(name: str | None = None, device: Device | None = None) -> Backend:
    """Select, load and activate a backend: what a program calls once before it runs ops."""
    return CATALOG.activate(CATALOG.select(name).backend.name, device)
