import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import sbjax

ROOT = Path(__file__).parents[1]
PYPROJECT = (ROOT / "pyproject.toml").read_text()
PROJECT = tomllib.loads(PYPROJECT)["project"]
REQUIREMENTS = PROJECT["dependencies"] + [
    r for extra in PROJECT["optional-dependencies"].values() for r in extra
]


def test_one_version_everywhere():
    version = PROJECT["version"]
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    released = re.findall(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert citation is not None and citation[1] == version
    assert released[0] == version
    assert importlib.metadata.version("sbjax") == version


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_every_dependency_has_its_reason_and_a_lower_bound(requirement):
    lines = PYPROJECT.splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip() == f'"{requirement}",')
    while lines[at].strip().startswith('"'):  # several lines with markers share one comment
        at -= 1
    assert lines[at].strip().startswith("# ")
    assert re.match(r"[\w-]+(>=|==)\d", requirement)


def test_installed_dependencies_are_the_declared_ones():
    declared = {re.match(r"[\w-]+", r)[0].replace("_", "-") for r in PROJECT["dependencies"]}
    core = [r for r in importlib.metadata.requires("sbjax") if "extra ==" not in r]
    assert {re.match(r"[\w-]+", r)[0].replace("_", "-") for r in core} == declared


def test_license_is_complete():
    text = (ROOT / "LICENSE").read_text()
    assert text.split()[:5] == ["Apache", "License", "Version", "2.0,", "January"]
    assert "END OF TERMS AND CONDITIONS" in text


def test_import_needs_no_extra():
    code = (
        "import sys, sbjax, kernels_pallas\n"
        "extras = {'torch', 'transformers', 'matplotlib', 'libtpu', 'pytest'} & set(sys.modules)\n"
        "assert not extras, extras"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, cwd=ROOT.parent)


def test_readme_names_only_what_there_is():
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    for block in blocks:
        compile(block, "README.md", "exec")
    imported = re.findall(r"^from sbjax import (.+)$", "\n".join(blocks), re.M)
    names = set(re.findall(r"\bsbjax\.(\w+)", text)) | {
        n.strip() for line in imported for n in line.split(",")
    }
    assert {"generate", "load", "ApplyModel"} <= names <= set(sbjax.__all__)
    for path in re.findall(r"\]\((?!https?:)([^)#]+)\)", text) + re.findall(r"^python (\S+)", text, re.M):
        assert (ROOT / path).exists(), path
