"""Builds the wheel from the sdist, checks that nothing is left out, and runs it in a fresh virtual environment.

The fresh environment gets its dependencies by a path entry to the environment that runs this script: its folder is
searched for modules, and its own .pth files (the editable installation among them) are not read.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("backends", "conformance", "hal", "model", "ops", "recipe", "runtime")


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}\nexit status {done.returncode}")
    return done.stdout


def build(source: Path, kind: str, into: Path) -> Path:
    """Builds one distribution with the build tools of this environment."""
    run(sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", into, source, cwd=into)
    (made,) = [path for path in into.iterdir() if path.suffix == (".gz" if kind == "sdist" else ".whl")]
    return made


def tracked_package_files() -> set[str]:
    """What git knows below the package, under the names that the wheel should have."""
    listed = run("git", "ls-files", "--", *FOLDERS, "src/deepinfer", cwd=ROOT).splitlines()
    names = {f"deepinfer/{name}" for name in listed if not name.startswith("src/")}
    names |= {name.removeprefix("src/") for name in listed if name.startswith("src/")}
    links = {f"deepinfer/{folder}" for folder in FOLDERS}
    return {name for name in names if name not in links and not name.endswith(".md")}


def check_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    left_out = tracked_package_files() - names
    foreign = {name for name in names if not name.startswith(("deepinfer/", "deepinfer_hal-"))}
    if left_out or foreign:
        sys.exit(f"{wheel.name}: left out {sorted(left_out)}; foreign {sorted(foreign)}")
    print(f"{wheel.name}: {len(names)} files")


def check_installed(wheel: Path, folder: Path) -> None:
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    own = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = run(python, "-c", "import deepinfer.ops; print(deepinfer.ops.__file__)", cwd=folder).strip()
    if not Path(where).is_relative_to(own):
        sys.exit(f"deepinfer.ops came from {where}, not from the wheel")
    command = environment / "bin" / "deepinfer"
    cache = {"XDG_CACHE_HOME": str(folder / "cache")}
    print(run(command, "--version", cwd=folder).strip())
    print(run(command, "generate", "Once upon a time", "--max-tokens", "8", cwd=folder, env=cache).strip())


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        made = folder / "made"
        made.mkdir()
        with tarfile.open(build(ROOT, "sdist", made)) as archive:
            archive.extractall(folder / "unpacked", filter="data")
        (source,) = (folder / "unpacked").iterdir()
        wheel = build(source, "wheel", made)
        check_contents(wheel)
        check_installed(wheel, folder)


if __name__ == "__main__":
    main()
