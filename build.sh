#!/usr/bin/env bash
# Sets up .venv, diagnoses the machine, runs the tests. `./build.sh --help` says how.
set -euo pipefail

usage() {
    cat <<'HELP'
Usage: ./build.sh [COMMAND]

  (none)             make .venv and install deepinfer into it; for ascend also say how far kernels get on this
                     machine, lower those whose text is not current, and run the self-test (simulated without CANN)
  test [ARGS]        the same with the test extra, then run the tests; ARGS go to pytest
  dev                the same with the test, dev, crosscheck, recipe-test, structured, images, page-test,
                     ascend-sim, cuda-sim and cuda-check extras
  --check            diagnose Python, torch, compiler, driver, CUDA, CANN, memory; installs nothing
                     exit status: 0 ready to run, 1 something is missing
  --dry-run [test|dev]
                     print the commands that would run
  -h, --help         this text

Environment:
  DEEPINFER_ACCELERATOR   cpu | nvidia | ascend (or their backends: reference | cuda | ascend);
                          without it: what is detected, else cpu
  DEEPINFER_PYTHON        the Python interpreter to build .venv with (3.11 or later);
                          without it: the first suitable of python3, python3.13, python3.12, python3.11
  pip's own variables and settings apply to every installation.

A second run with nothing changed returns at once. Exit status 2: a wrong argument or variable.
HELP
}

accelerators="cpu (reference), nvidia (cuda), ascend"
oldest_python="3.11"

case "${DEEPINFER_PYTHON:-}" in
    /*) ;;
    */*) DEEPINFER_PYTHON="$PWD/$DEEPINFER_PYTHON" ;;
esac
cd -- "$(dirname -- "${BASH_SOURCE[0]}")" >/dev/null
root=$(pwd -P)
venv="$root/.venv"
venv_python="$venv/bin/python"
made_with="$venv/.deepinfer-made-with"    # what .venv was created for; another value means: create anew
installed="$venv/.deepinfer-installed"    # what was installed last; written when all of it succeeded

die() { printf 'build.sh: %s\n' "$1" >&2; exit "${2:-1}"; }
say() { printf 'build.sh: %s\n' "$1"; }

# --- what this machine has ---------------------------------------------------------------------------------------

has_nvidia() { nvidia-smi -L >/dev/null 2>&1 || [ -e /proc/driver/nvidia/version ]; }
has_npu() { npu-smi info >/dev/null 2>&1 || [ -e /dev/davinci0 ] || [ -e /dev/davinci_manager ]; }

# Prints where a CANN toolkit may lie, a folder a line; backends/ascend/discovery.py looks in the same places.
cann_folders() {
    local folder root
    for folder in "${ASCEND_HOME_PATH:-}" "${ASCEND_TOOLKIT_HOME:-}"; do
        [ -z "$folder" ] || printf '%s\n' "$folder"
    done
    for root in /usr/local "${HOME:-}"; do
        [ -z "$root" ] || printf '%s\n' "$root/Ascend/ascend-toolkit/latest" "$root/Ascend/cann"
    done
}

# Prints the folder of the CANN toolkit, or fails.
find_cann() {
    local folder
    while IFS= read -r folder; do
        if [ -d "$folder" ]; then
            printf '%s\n' "$folder"
            return 0
        fi
    done < <(cann_folders)
    return 1
}

# Sets accelerator, and chosen_by for messages.
choose_accelerator() {
    chosen_by="DEEPINFER_ACCELERATOR"
    case "${DEEPINFER_ACCELERATOR:-}" in
        cpu | reference) accelerator=cpu ;;
        nvidia | cuda) accelerator=nvidia ;;
        ascend | npu) accelerator=ascend ;;
        "")
            chosen_by="detected"
            if has_nvidia; then
                accelerator=nvidia
            elif has_npu; then
                accelerator=ascend
            else
                accelerator=cpu
                chosen_by="no accelerator detected"
            fi
            ;;
        *) die "DEEPINFER_ACCELERATOR: got '$DEEPINFER_ACCELERATOR'; allowed: $accelerators" 2 ;;
    esac
}

# --- Python ------------------------------------------------------------------------------------------------------

python_is_recent() {
    "$1" -c 'import sys; sys.exit(sys.version_info < tuple(map(int, sys.argv[1].split("."))))' \
        "$oldest_python" >/dev/null 2>&1
}

# Sets python, or fails with the reason in python_problem.
choose_python() {
    local candidate
    python=""
    python_problem=""
    if [ -n "${DEEPINFER_PYTHON:-}" ]; then
        if ! command -v "$DEEPINFER_PYTHON" >/dev/null 2>&1; then
            python_problem="DEEPINFER_PYTHON: '$DEEPINFER_PYTHON' is not a program"
        elif ! python_is_recent "$DEEPINFER_PYTHON"; then
            python_problem="DEEPINFER_PYTHON: '$DEEPINFER_PYTHON' is not Python $oldest_python or later"
        else
            python="$DEEPINFER_PYTHON"
        fi
    else
        for candidate in python3 python3.13 python3.12 python3.11; do
            if command -v "$candidate" >/dev/null 2>&1 && python_is_recent "$candidate"; then
                python="$candidate"
                break
            fi
        done
        if [ -z "$python" ]; then
            python_problem="no Python $oldest_python or later was found; install one, \
or name it in DEEPINFER_PYTHON"
        fi
    fi
    if [ -n "$python" ] && ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        python_problem="$python has no venv module; install it (Debian, Ubuntu: the package python3-venv), \
or name another interpreter in DEEPINFER_PYTHON"
    fi
    # With .venv activated, python3 is the one in it, which goes when .venv is made anew: take the one behind it.
    if [ -n "$python" ] && [ "$("$python" -c 'import sys; print(sys.prefix)')" = "$venv" ]; then
        python=$("$python" -c "$base_python; print(base)")
    fi
    [ -z "$python_problem" ]
}

# The interpreter behind $1 (also behind a virtual environment), and its version.
base_python='import os, sys; base = os.path.realpath(getattr(sys, "_base_executable", sys.executable))'
describe_python() { "$1" -c "$base_python; print(base, sys.version.split()[0])"; }

# --- installing --------------------------------------------------------------------------------------------------

run() {
    if [ -n "$dry_run" ]; then
        printf '%q ' "$@"
        printf '\n'
    else
        "$@"
    fi
}

pip_install() {
    local quiet=()
    [ -t 1 ] || quiet=(--quiet)
    run "$venv_python" -m pip install --disable-pip-version-check ${quiet[@]+"${quiet[@]}"} \
        --constraint "constraints/$accelerator.txt" "$@"
}

# A virtual environment is bound to its folder and interpreter, and torch builds for two accelerators share a version.
make_venv() {
    local wanted
    wanted="$accelerator${cann:+ with CANN} $root $(describe_python "$python")"
    if [ -d "$venv" ]; then
        if [ -f "$made_with" ] && [ "$(cat "$made_with")" = "$wanted" ] && [ -x "$venv_python" ]; then
            return 0
        fi
        [ -f "$made_with" ] || die ".venv was not made by build.sh; move it away first"
        say "making .venv anew (was for: $(cat "$made_with"))"
        run rm -rf -- "$venv"
    fi
    say "making .venv with $(describe_python "$python") for $accelerator ($chosen_by)"
    run mkdir -p "$venv"
    [ -n "$dry_run" ] || printf '%s\n' "$wanted" >"$made_with"
    run "$python" -m venv "$venv"
}

# One line that changes whenever the installation may have to. What binds .venv as a whole is in made_with.
installation_key() {
    "$python" - "constraints/$accelerator.txt" pyproject.toml <<'PY'
import hashlib, pathlib, sys
digest = hashlib.sha256()
for name in sys.argv[1:]:
    digest.update(pathlib.Path(name).read_bytes())
print(digest.hexdigest())
PY
}

# set_up EXTRA...: adds the named extras to those that are there.
set_up() {
    local cann key list extra extras=() missing=""
    choose_accelerator
    choose_python || die "$python_problem"
    [ "$accelerator" != ascend ] || set -- "$@" ascend-sim    # what lowers kernels, and the simulator's headers
    cann=""
    [ "$accelerator" != ascend ] || cann=$(find_cann || true)
    make_venv
    key=$(installation_key)
    if [ -f "$installed" ]; then
        read -r -a extras < <(sed -n 2p "$installed") || true
    fi
    for extra in "$@"; do
        case " ${extras[*]-} " in
            *" $extra "*) ;;
            *) extras+=("$extra") missing=yes ;;
        esac
    done
    if [ -z "$missing" ] && [ -f "$installed" ] && [ "$(sed -n 1p "$installed")" = "$key" ]; then
        return 0
    fi
    run rm -f "$installed"
    say "installing torch (constraints/$accelerator.txt)"
    pip_install torch
    if [ "$accelerator" = nvidia ] && [ -z "$dry_run" ]; then
        # pip may have taken a wheel for CPUs from a local folder or an index of its own.
        "$venv_python" -c 'import sys, torch; sys.exit(torch.version.cuda is None)' ||
            die "the torch that pip found has no CUDA; check pip's configuration (pip config list) for an index or a folder
with CPU wheels, then run ./build.sh again"
    fi
    if [ "$accelerator" = ascend ]; then
        if [ -n "$cann" ]; then
            say "installing torch_npu (CANN in $cann)"
            pip_install torch_npu
        else
            say "no CANN found: torch_npu is left out, since it breaks torch without it"
        fi
    fi
    list="${extras[*]-}"
    say "installing deepinfer${list:+ with $list}"
    pip_install --editable ".${list:+[${list// /,}]}"
    if [ "$accelerator" = ascend ]; then
        say "how far kernels get here, those to be lowered, and a self-test"
        run "$venv_python" -m deepinfer.backends.ascend.build --self-test ||
            die "the kernels for Ascend cannot run here: see above"
    fi
    [ -n "$dry_run" ] || printf '%s\n%s\n' "$key" "$list" >"$installed"
}

# --- diagnosing --------------------------------------------------------------------------------------------------

report() { printf '  %-8s %-14s %s\n' "$1" "$2" "$3"; }
missing() {
    report missing "$1" "$2"
    not_ready=yes
}

check_python() {
    if choose_python; then
        report ok Python "$(describe_python "$python")"
    else
        missing Python "$python_problem"
    fi
}

check_torch() {
    local answer
    if [ ! -x "$venv_python" ]; then
        missing torch ".venv does not exist; ./build.sh makes it"
    elif ! answer=$(TORCH_DEVICE_BACKEND_AUTOLOAD=0 "$venv_python" -c 'import torch; print(torch.__version__)' 2>&1); then
        missing torch "$(printf '%s' "$answer" | tail -n 1); ./build.sh installs it"
    else
        report ok torch "$answer"
    fi
    if [ -x "$venv_python" ]; then
        if [ -f "$installed" ] && answer=$("$venv_python" -c 'import deepinfer; print(deepinfer.__version__)' 2>&1); then
            report ok deepinfer "$answer in .venv"
        else
            missing deepinfer "not installed in .venv; ./build.sh installs it"
        fi
    fi
}

check_compiler() {
    local compiler
    for compiler in "${CXX:-}" g++ clang++ c++; do
        if [ -n "$compiler" ] && command -v "$compiler" >/dev/null 2>&1; then
            report ok compiler "$("$compiler" --version | head -n 1)"
            return
        fi
    done
    report absent compiler "no C++ compiler; the simulator of deepinfer ascend needs one (Debian, Ubuntu: the package g++)"
}

check_nvidia() {
    local answer
    if answer=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null); then
        report ok driver "NVIDIA: $(printf '%s' "$answer" | tr '\n' ';')"
    elif [ "$accelerator" = nvidia ]; then
        missing driver "nvidia-smi does not answer; install NVIDIA's driver, or set DEEPINFER_ACCELERATOR=cpu"
    else
        report absent driver "no NVIDIA driver; needed for nvidia only"
    fi
    if [ "$accelerator" = nvidia ] && [ -x "$venv_python" ]; then
        if answer=$("$venv_python" -c 'import torch; assert torch.cuda.is_available(); print(torch.version.cuda)' 2>&1); then
            report ok CUDA "$answer, as torch was built"
        else
            missing CUDA "this torch sees no GPU; check that the driver is recent enough and that torch is a CUDA build"
        fi
    elif command -v nvcc >/dev/null 2>&1; then
        report ok CUDA "nvcc $(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/\1/p'); nothing needs it today"
    else
        report absent CUDA "no nvcc; not needed: torch brings its CUDA libraries"
    fi
}

check_ascend() {
    local folder
    if folder=$(find_cann); then
        report ok CANN "$folder"
    elif [ "$accelerator" = ascend ]; then
        missing CANN "not found; install the CANN toolkit and set ASCEND_HOME_PATH, or set DEEPINFER_ACCELERATOR=cpu"
    else
        report absent CANN "needed for ascend only"
    fi
    if [ -z "$folder" ] && [ -x "$venv_python" ] &&
        "$venv_python" -c 'import sys, importlib.util as u; sys.exit(u.find_spec("torch_npu") is None)' 2>/dev/null; then
        missing torch_npu "installed without CANN, which breaks import torch; install CANN, or: .venv/bin/pip uninstall torch_npu"
    fi
    if [ "$accelerator" = ascend ] && ! has_npu; then
        missing NPU "no device: npu-smi does not answer and /dev/davinci* is absent; install Ascend's driver"
    fi
}

check_memory() {
    local total available
    if [ -r /proc/meminfo ]; then
        total=$(awk '/^MemTotal/ {printf "%.1f", $2 / 1048576}' /proc/meminfo)
        available=$(awk '/^MemAvailable/ {printf "%.1f", $2 / 1048576}' /proc/meminfo)
        if awk -v a="$available" 'BEGIN {exit !(a < 2)}'; then
            missing memory "$available GiB available of $total; the embedded checkpoint and the tests want 2"
        else
            report ok memory "$available GiB available of $total"
        fi
    else
        report unknown memory "no /proc/meminfo here"
    fi
    report ok disk "$(df -Pk . | awk 'NR == 2 {printf "%.1f GiB", $4 / 1048576}') free here"
}

check() {
    not_ready=""
    choose_accelerator
    say "accelerator $accelerator ($chosen_by)"
    check_python
    check_torch
    check_compiler
    check_nvidia
    check_ascend
    check_memory
    [ -z "$not_ready" ] || { say "not ready: see what is missing above"; return 1; }
    say "ready"
}

# --- commands ----------------------------------------------------------------------------------------------------

dry_run=""
if [ "${1:-}" = --dry-run ]; then
    dry_run=yes
    shift
fi
command=${1:-build}
[ $# -eq 0 ] || shift
[ "$command" = test ] || [ $# -eq 0 ] || die "unexpected argument '$1'; ./build.sh --help lists what there is" 2
case "$command" in
    build)
        set_up
        if [ -n "$dry_run" ]; then
            :
        elif [ "$accelerator" = ascend ]; then
            say "ready: .venv/bin/deepinfer generate --model kernel --backend ascend \"Once upon a time\""
        else
            say "ready: .venv/bin/deepinfer generate \"Once upon a time\""
        fi
        ;;
    test)
        set_up test
        run "$venv_python" -m pytest "$@"
        ;;
    dev) set_up test dev crosscheck recipe-test structured images page-test ascend-sim cuda-sim cuda-check ;;
    --check) check ;;
    -h | --help) usage ;;
    *)
        die "unknown command '$command'; ./build.sh --help lists what there is" 2
        ;;
esac
