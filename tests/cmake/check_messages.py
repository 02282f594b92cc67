# SPDX-License-Identifier: Apache-2.0
"""Every sentence of ours under include/ is tested and documented: check_messages.py REPOSITORY

A sentence is a string literal that begins with `tide::`, adjacent literals joined. Its head ends at the first `;` or
`.` that ends a word. In a static_assert it has the form `tide::Name: rule[; what to do].`, a case in tests/compile_fail
whose `expect:` is a beginning of it that holds the head, and a heading in docs/errors.md that is the head. Elsewhere
(`tide::Name: ...`, an error at run time) it has a heading; where the text goes on with values, the heading may too:
"tide::SlotPool: needs " is met by `### tide::SlotPool: needs X GiB, has Y`, and `{}` by any words.
Headings that no sentence has are stale and fail. An `#error "tide: rule[; what to do]."` has a case and a heading, too.
"""

import pathlib
import re
import sys

from check_compile_fail import cases

TOKEN = re.compile(
    r'''(?P<comment>//[^\n]*|/\*.*?\*/)
      |(?P<raw>(?:u8|[uUL])?R"(?P<tag>[^()\\\s]*)\((?P<body>.*?)\)(?P=tag)")
      |(?P<string>(?:u8|[uUL])?"(?P<text>(?:\\.|[^"\\\n])*)")
      |(?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
      |(?P<number>\.?\d(?:'?[\w.])*)
      |(?P<word>\w+)
      |(?P<space>\s+|\\\n)
      |(?P<mark>.)''',
    re.VERBOSE | re.DOTALL,
)
HEAD_END = re.compile(r"[;.](?=\s|$)")


def literals(text):
    """Yields (line, joined string literal, whether inside a static_assert) for each literal of a C++ source."""
    line, depth, opened, parts, start = 1, 0, None, [], 0
    asserting = pending = False
    for token in TOKEN.finditer(text):
        kind = token.lastgroup
        here, line = line, line + token.group().count("\n")
        if kind in ("comment", "space"):
            continue
        if kind in ("string", "raw"):
            start = start if parts else here
            parts.append(token.group("body") if kind == "raw" else token.group("text"))
            continue
        if parts:
            yield start, "".join(parts).replace('\\"', '"').replace("\\\\", "\\"), asserting
            parts = []
        word = token.group()
        if kind == "word" and re.fullmatch(r"static_assert|TIDE_\w*STATIC_ASSERT\w*", word):
            pending = True
        elif word == "(":
            depth += 1
            if pending and not asserting:
                asserting, opened = True, depth
            pending = False
        elif word == ")":
            if asserting and depth == opened:
                asserting = False
            depth -= 1
        else:
            pending = False


def head(sentence):
    found = HEAD_END.search(sentence)
    return (sentence[: found.start()] if found else sentence).strip()


def documents(heading, sentence, static):
    """Whether a heading is the one for a sentence."""
    start = head(sentence)
    pattern = ".+".join(re.escape(part) for part in re.split(r"\{[^{}]*\}", start))
    goes_on = not static and start == sentence.strip()
    return re.fullmatch(pattern + (".*" if goes_on else ""), heading) is not None


def main():
    root = pathlib.Path(sys.argv[1])
    problems = []

    expected = []
    for path in sorted((root / "tests/compile_fail").rglob("*.c*")):
        expected += [text for _, text in cases(path.read_text(encoding="utf-8")) if text]

    errors = root / "docs/errors.md"
    headings = {}
    if errors.exists():
        for number, line in enumerate(errors.read_text(encoding="utf-8").splitlines(), 1):
            found = re.match(r"#{2,6}\s+(.*?)\s*#*$", line)
            if found:
                headings[re.sub(r"\\([<>_*`\[\]])", r"\1", found.group(1).replace("`", ""))] = number

    used = set()
    count = 0
    undocumented = set()
    for path in sorted(p for p in (root / "include").rglob("*") if p.suffix in (".hpp", ".cuh")):
        for sentence in re.findall(r'^\s*#\s*error\s+"?(.*?)"?\s*$', path.read_text(encoding="utf-8"), re.MULTILINE):
            count += 1
            if not sentence.startswith("tide: ") or not sentence.endswith("."):
                problems.append(f'{path.relative_to(root)}: an #error says "tide: rule[; what to do].", not "{sentence}"')
            tested = any(sentence.startswith(e) and len(e) >= len(head(sentence)) for e in expected)
            if path.suffix == ".hpp" and not tested:  # what a .cuh refuses is another version of CUDA or NCCL
                problems.append(f"{path.relative_to(root)}: no case in tests/compile_fail has\n    // expect: {head(sentence)}")
            if head(sentence) not in headings:
                problems.append(f"{path.relative_to(root)}: docs/errors.md has no heading\n    ### {head(sentence)}")
        for line, sentence, static in literals(path.read_text(encoding="utf-8")):
            place = f"{path.relative_to(root)}:{line}"
            ours = re.match(r"tide::[^\s:]+(::[^\s:]+)*: ", sentence)
            if static and not (ours and sentence.endswith(".")):
                problems.append(f'{place}: a static_assert says "tide::Name: rule[; what to do].", not "{sentence}"')
                continue
            if not ours:
                continue
            count += 1
            if static and not any(sentence.startswith(e) and len(e) >= len(head(sentence)) for e in expected):
                problems.append(f"{place}: no case in tests/compile_fail has\n    // expect: {head(sentence)}")
            matching = [h for h in headings if documents(h, sentence, static)]
            used.update(matching)
            if not matching and head(sentence) not in undocumented:
                undocumented.add(head(sentence))
                problems.append(f"{place}: docs/errors.md has no heading\n    ### {head(sentence)}")

    for heading, number in headings.items():
        if heading.startswith("tide::") and heading not in used:
            problems.append(f"docs/errors.md:{number}: no header says: {heading}")

    if problems:
        sys.exit("\n".join(problems) + f"\n{len(problems)} problems with {count} messages")
    print(f"{count} messages are tested and documented")


if __name__ == "__main__":
    main()
