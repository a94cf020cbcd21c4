#!/usr/bin/env bash
# Builds the wheel, installs it in a clean environment and uses it from another folder: what a user gets is
# what is tested, not the checkout. Usage: tools/smoke_wheel.sh [PYTHON]
set -euo pipefail
python=$(realpath -s "${1:-python3}")
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
pip="-m pip --disable-pip-version-check"

echo "building the wheel"
"$python" $pip wheel -qq --no-deps --wheel-dir "$folder/dist" "$root"
echo "installing $(basename "$folder"/dist/*.whl) in a clean environment"
"$python" -m venv "$folder/venv"
clean="$folder/venv/bin/python"
"$clean" $pip install -qq --no-compile "$folder"/dist/*.whl
"$clean" $pip check

echo "using it from another folder"
mkdir "$folder/elsewhere" && cd "$folder/elsewhere"
env -u PYTHONPATH JAX_PLATFORMS=cpu "$clean" -W error - "$root" <<'PYTHON'
import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import kernels_pallas
import sbjax

root = Path(sys.argv[1])
for package in (sbjax, kernels_pallas):
    home = Path(package.__file__).resolve()
    assert "site-packages" in home.parts and not home.is_relative_to(root), f"{home} is not the installed wheel"
for name in ("torch", "transformers", "tools", "tests"):
    assert importlib.util.find_spec(name) is None, f"{name} must not come with the wheel"

target, draft = sbjax.load_default_pair()
plain, fast = (
    sbjax.generate(target, "import os\n", draft=draft, method=method, max_new_tokens=16, temperature=0.8, seed=1)
    for method in (sbjax.Autoregressive(), sbjax.SpS(4))
)
assert plain.texts == fast.texts, "speculative text differs from plain text"
assert len(fast.generations[0].tokens) == 16, fast
assert sbjax.load_default_predictor().config.features == 4
print(f"sbjax {importlib.metadata.version('sbjax')} works from {Path.cwd()}")
PYTHON
