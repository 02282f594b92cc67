# SPDX-License-Identifier: Apache-2.0
"""One case of a compile-fail test: check_compile_fail.py CASE SOURCE COMPILER [FLAG...]

    #if TIDE_CASE == 1  // expect: tide::Mesh: Nodes must be positive
    ...
    #else  // control: the same with legal arguments
    ...
    #endif

CASE `control` must compile. A numbered case must not, and the compiler must print the text after `expect:`, and after
`// names: w` behind it the string "w", which says which parameter it is. A line `// flags: -std=c++17` gives the
numbered cases more flags.
"""

import re
import subprocess
import sys

CASE = re.compile(
    r"^\s*#\s*(?:el)?if TIDE_CASE == (\d+)\s*(?://\s*expect:\s*(.*?\S)(?:\s*// names: (\S+))?)?\s*$", re.MULTILINE)


def cases(text):
    """The numbered cases of a source: a list of (number, expected text or None)."""
    return [(number, expected) for number, expected, _ in named_cases(text)]


def named_cases(text):
    """The same with the name that must be printed: a list of (number, expected text or None, name or None)."""
    return [(int(number), expected, name) for number, expected, name in CASE.findall(text)]


def words(text):
    """Text without line breaks, which compilers put where they like."""
    return " ".join(text.split())


def fail(message, output=""):
    sys.exit(f"{message}\n{output}")


def main():
    case, source, *command = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        text = file.read()
    expected = dict(cases(text))
    if sorted(expected) != list(range(1, len(cases(text)) + 1)):
        fail(f"{source}: cases must be numbered 1, 2, 3, ...; found {[number for number, _ in cases(text)]}")
    if not re.search(r"^\s*#\s*else\b.*// control", text, re.MULTILINE):
        fail(f"{source}: no line '#else  // control: ...'")
    if case != "control":
        if not expected.get(int(case)):
            fail(f"{source}: case {case} has no '// expect: tide::...' on its line")
        command.append(f"-DTIDE_CASE={case}")
        for flags in re.findall(r"^// flags: (.*)$", text, re.MULTILINE):
            command += flags.split()

    command.append(source)
    result = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace")
    print(" ".join(command))
    if case == "control":
        if result.returncode != 0:
            fail(f"{source}: the control must compile and does not:", result.stdout)
        return
    wanted = expected[int(case)]
    if result.returncode == 0:
        fail(f"{source}: case {case} compiles; it must fail with: {wanted}")
    # nvcc quotes source lines; what this file itself says proves nothing.
    own = {words(line) for line in text.splitlines()}
    printed = words("\n".join(line for line in result.stdout.splitlines() if words(line) not in own))
    if words(wanted) not in printed:
        fail(f"{source}: case {case} fails to compile without the text: {wanted}", result.stdout)
    name = {number: name for number, _, name in named_cases(text)}[int(case)]
    codes = [str(ord(letter)) for letter in name + "\0"]  # as Clang 14 spells it
    codes = codes[:10] + ["..."] if len(codes) > 10 else codes
    if name and f'"{name}"' not in printed and "{{" + ", ".join(codes) + "}}" not in printed:
        fail(f"{source}: case {case} fails to compile without the name: {name}", result.stdout)


if __name__ == "__main__":
    main()
