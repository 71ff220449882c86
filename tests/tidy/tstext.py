"""A small reader of TypeScript and JavaScript in the layout of the page (prettier): finds functions by their indentation."""

import re

_NOT_A_NAME = {"if", "for", "while", "switch", "catch", "return", "with"}
_FUNCTION = re.compile(r"(?:export )?(?:default )?(?:async )?function\*? ?(\w*)")
_METHOD = re.compile(r"(?:(?:static|private|protected|public|override|async|get|set) )*\*?(\w+)(?:<[^>]*>)?\(")
_VARIABLE = re.compile(r"(?:export )?(?:const|let) (\w+)")
_CLOSES = re.compile(r"[})\]]")
_GOES_ON = re.compile(r"(?:[{(\[|&?:]|=>)$")


def _indent(line):
    return len(line) - len(line.lstrip(" "))


def _name_of(text):
    """The name of a function that this line begins; "": it has none; None: the line begins no function of several lines."""
    match = _FUNCTION.match(text)
    if match:
        return match.group(1)
    if re.search(r"=> ?[({\[]?$", text):
        match = _VARIABLE.match(text)
        return match.group(1) if match else ""
    match = _METHOD.match(text)
    if match and match.group(1) not in _NOT_A_NAME and text.endswith(("{", "(")) and not text.startswith("return"):
        return match.group(1) if text.endswith("{") else None
    return None


def functions(text):
    """Yields (name, first line, last line) of each function that has several lines."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        name = _name_of(line.strip())
        if name is None or line.rstrip().endswith(("}", ";")):
            continue
        depth = _indent(line)
        for end in range(number + 1, len(lines)):
            below = lines[end]
            if below.strip() and _indent(below) == depth and _CLOSES.match(below.strip()) and not _GOES_ON.search(below.rstrip()):
                yield name or "a function without a name", number + 1, end + 1
                break
