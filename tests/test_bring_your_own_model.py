"""The example of docs/bring_your_own_model.md runs as it stands."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("quick_compile")
PAGE = Path(__file__).parents[1] / "docs" / "bring_your_own_model.md"


def test_the_example_runs():
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert blocks
    names: dict = {"__name__": "example"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["fast"].statistics["accepted"] > 0
    assert names["fast"].statistics["tokens"] == names["plain"].statistics["tokens"] == 80
