"""The page on the files of verified work says what the modules say: neither can change alone."""

import re
from types import ModuleType

import pytest

from guerdon.looks import commitment, encoding, opening, sealing
from tests.pages.test_pages import TEXT

PAGE = TEXT["docs/reference/looks.md"]
STATED = {"encoding": encoding, "leaf": opening, "salt": commitment, "seal": sealing}


def blocks(module: ModuleType) -> list[str]:
    """Return the indented blocks of a module's docstring, each as one line."""
    found = re.findall(r"(?:^    .*\n)+", (module.__doc__ or "") + "\n", flags=re.MULTILINE)
    return [" ".join(block.split()) for block in found]


@pytest.mark.parametrize("name", STATED)
def test_a_form_is_stated_as_its_module_states_it(name: str) -> None:
    stated = re.search(rf"<!-- {name} -->\n```text\n(.*?)\n```", PAGE, flags=re.DOTALL)
    assert stated, name
    assert " ".join(stated[1].split()) in blocks(STATED[name])
