"""What a page says is read as its reader would."""

from __future__ import annotations

import pytest

from experiments.pages import made_parts
from experiments.pages.markdown import Command, blocks, commands, part

PAGE = """\
Prose with `code`.

```python
# train.py
print("```")
```

```python
not_a_file = True
```

```sh
pip install x   # a comment
stabexp run train.py:train \\
    -o steps=3  # exit code 3: diverged

# only a comment
stabexp ui  # until Ctrl-C
```

<!-- snippets: no, because it is only shown -->
```sh
rm -rf everything
```

````console
```
````
"""


def test_blocks_are_found_with_their_lines_and_what_is_only_shown_is_left_out():
    found = list(blocks(PAGE))
    assert [(b.language, b.line, b.file) for b in found] == [
        ("python", 4, "train.py"),
        ("python", 9, ""),
        ("sh", 13, ""),
        ("console", 27, ""),
    ]
    assert found[0].text == '# train.py\nprint("```")\n'
    assert found[-1].text == "```\n"


def test_commands_have_their_line_exit_code_and_whether_they_stay():
    shell = next(block for block in blocks(PAGE) if block.language == "sh")
    assert list(commands(shell)) == [
        Command(13, "pip install x"),
        Command(14, "stabexp run train.py:train     -o steps=3", 3),
        Command(18, "stabexp ui", 0, True),
    ]


def test_a_block_without_an_end_is_told_with_its_line():
    with pytest.raises(ValueError, match=r"^3: this block has no end"):
        list(blocks("a\n\n```sh\nls\n"))


def test_a_part_of_a_page_keeps_its_line_numbers():
    found = part("one\ntwo\nthree\nfour\n", "two", "four")
    assert found == "\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [("gone", "", "no line holds 'gone'"), ("two", "one", "no line after 2 holds 'one'")],
)
def test_a_part_that_is_not_there_is_an_error(first, last, message):
    with pytest.raises(ValueError, match=message):
        part("one\ntwo\n", first, last)


def test_made_parts_are_made_anew_and_the_prose_stays():
    page = "a\n<!-- made: x -->\nold\n<!-- end -->\nb\n<!-- made: y -->\n<!-- end -->\n"
    new = made_parts.filled(page, {"x": "new\nlines", "y": ""})
    assert new == (
        "a\n<!-- made: x -->\nnew\nlines\n<!-- end -->\nb\n<!-- made: y -->\n<!-- end -->\n"
    )
    assert made_parts.filled(new, {"x": "new\nlines", "y": ""}) == new
    assert made_parts.filled(new, {}, partly=True) == new


@pytest.mark.parametrize("parts", [{}, {"x": "", "z": ""}])
def test_a_made_part_that_nobody_makes_or_that_has_no_place_is_an_error(parts):
    with pytest.raises(ValueError, match="on the page or made, but not both"):
        made_parts.filled("<!-- made: x -->\n<!-- end -->\n", parts)
