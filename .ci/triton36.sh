#!/usr/bin/env bash
# Installs Triton 3.6 into build/triton-3.6, beside the one of .venv: the compile check of the CUDA kernels uses both.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." >/dev/null

target=build/triton-3.6
if [ -f "$target/triton/__init__.py" ]; then exit 0; fi
rm -rf -- "$target" "$target.making"
"${1:-.venv/bin/python}" -m pip install --disable-pip-version-check --quiet --no-deps \
    --target "$target.making" "triton==3.6.*"
mv -- "$target.making" "$target"
