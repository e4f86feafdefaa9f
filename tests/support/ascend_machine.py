"""A machine that discovery may ask, in place of this one."""

from __future__ import annotations

from collections.abc import Mapping

HOME = "/opt/cann"


class Fake:
    """A machine: what is installed, and how often the device was asked."""

    def __init__(
        self,
        *,
        cann: str | None = None,
        torch_npu: str | None = None,
        devices: list[str] | Exception | None = None,
        programs: tuple[str, ...] = (),
        lowering: str = "",
        simulator: str = "",
        environ: Mapping[str, str] | None = None,
        library: bool | None = None,
    ) -> None:
        self.environ = {"ASCEND_HOME_PATH": HOME} if environ is None else environ
        self.files = {f"{HOME}/version.cfg": f"# version\ntoolkit_running_version=[{cann}:{cann}]\n"} if cann else {}
        self.packages = {"torch": "2.13.0+cpu", "torch_npu": torch_npu}
        self._devices, self.programs = devices, programs
        self._lowering, self._simulator = lowering, simulator
        self.library = cann is not None if library is None else library
        self.asked = 0

    def version(self, package: str) -> str | None:
        return self.packages.get(package)

    def lowering(self) -> str:
        return self._lowering

    def simulator(self) -> str:
        return self._simulator

    def loads(self, library: str) -> bool:
        return self.library and library == f"{HOME}/lib64/libascendcl.so"

    def which(self, program: str) -> str | None:
        return program if program in self.programs else None

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def devices(self) -> list[str]:
        self.asked += 1
        if isinstance(self._devices, Exception):
            raise self._devices
        return self._devices or []


WHOLE = {"cann": "9.2.0", "torch_npu": "2.13.0", "devices": ["Ascend950PR_9599"] * 2}
