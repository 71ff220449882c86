"""A small reader of C, C++ and CUDA text: enough to find functions, not a parser."""

import re

_NOISE = re.compile(
    r"""//(?:\\\n|[^\n])*            # comment to the end of the line
      | /\*.*?\*/                   # comment
      | R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)"   # raw string
      | "(?:\\.|[^"\\\n])*"
      | '(?:\\.|[^'\\\n])*'
      | ^[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])*           # preprocessor line with its continuations
    """,
    re.X | re.S | re.M,
)
# What may stand between a parameter list and the function's brace.
_AFTER_PARAMETERS = re.compile(r"(?:\b(?:const|noexcept|override|final)\b|->\s*[\w:<>*&\s]+)\s*$")
_DECLARES_TYPE = re.compile(r"\b(?:struct|class|union|enum)\b[^()]*$")
_DECLARES_SCOPE = re.compile(r"\b(?:namespace\b[^()]*|extern\s*)$")


def without_noise(text):
    """The text with comments, strings and preprocessor lines blanked; the lines stay where they are."""

    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))

    return _NOISE.sub(blank, text)


def _opens_function(before):
    while True:
        shorter = _AFTER_PARAMETERS.sub("", before.rstrip()).rstrip()
        if shorter == before.rstrip():
            break
        before = shorter
    return before.rstrip().endswith(")")


def functions(text):
    """Yields (name, first line, last line) of each function body, from its signature's first line to its brace."""
    text = without_noise(text)
    stack = []  # per open brace: None, or (name, first line) of a function
    start = 0  # where the text begins that says what the next brace opens
    in_function = 0
    for match in re.finditer(r"[{};]", text):
        mark, at = match.group(0), match.start()
        if mark == "{":
            before = text[start:at]
            entry = None
            is_plain = not (_DECLARES_TYPE.search(before) or _DECLARES_SCOPE.search(before))
            if in_function == 0 and is_plain and "=" not in before.split("(")[0] and _opens_function(before):
                head = before.lstrip()
                names = [n for n in re.findall(r"([\w:~]+)\s*\(", head) if not n.startswith("__")]
                entry = (names[0] if names else "?", text.count("\n", 0, at - len(head)) + 1)
            stack.append(entry)
            in_function += entry is not None
        elif mark == "}":
            entry = stack.pop() if stack else None
            if entry is not None:
                in_function -= 1
                yield entry[0], entry[1], text.count("\n", 0, at) + 1
        start = at + 1
