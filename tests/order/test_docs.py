import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "ordering.md"


def test_the_example_of_the_page() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted >= 6
    assert not found.failed
