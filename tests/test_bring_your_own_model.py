"""The documented example runs as it stands."""

import re
from pathlib import Path

import sbjax

DOCUMENT = Path(__file__).parents[1] / "docs" / "bring_your_own_model.md"


def test_the_example_of_the_document_runs():
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    names: dict = {}
    exec(compile(code, str(DOCUMENT), "exec"), names)
    assert isinstance(names["fast"], sbjax.Result)
    assert names["fast"].statistics["accepted"] > 0
