# SPDX-License-Identifier: Apache-2.0
"""The rules for headers that a compiler does not check: check_includes.py REPOSITORY

Layers and detail folders, tide.hpp, what a header must and must not contain, where its test is. Docs: contributing.md.
"""

import pathlib
import re
import sys

from check_messages import TOKEN

LAYERS = ["core", "element", "layout", "plan", "transport", "reduce", "fabric", "memory", "pipeline", "models"]
SPDX = "// SPDX-License-Identifier: Apache-2.0"
MACRO_HOMES = ("core/config.hpp",)
MOST_LINES = 300
# Names that ask for a standard feature, not for a compiler or an architecture.
NEUTRAL = re.compile(r"__cpp_\w+|__has_include|__has_cpp_attribute|__cplusplus|__VA_OPT__|__VA_ARGS__")


def layer_of(name):
    first = name.split("/")[0]
    return first if "/" in name else None


def may_include(here, there):
    """Whether a header of layer `here` may include one of layer `there`."""
    if here == there:
        return True
    if here == "models":
        return LAYERS.index(there) <= LAYERS.index("layout")
    return LAYERS.index(there) < LAYERS.index(here)


def is_public(name):
    return "/detail/" not in name


def code_of(text):
    """The text with comments and literals blanked; lines keep their numbers."""

    def blank(token):
        if token.lastgroup in ("word", "number", "mark", "space"):
            return token.group()
        if token.group().startswith("//") or token.group().startswith("/*"):
            return "\n" * token.group().count("\n") or " "
        return '""' + "\n" * token.group().count("\n")

    return TOKEN.sub(blank, text)


def check(name, text, names, root):
    """Yields (line number, problem) for one header; `names` are all headers."""
    lines = text.splitlines()
    code = code_of(text).splitlines()
    layer = layer_of(name)

    if not lines or lines[0] != SPDX:
        yield 1, f"the first line must be '{SPDX}'"
    if "#pragma once" not in lines:
        yield 1, "no '#pragma once'"

    for number, line in enumerate(lines, 1):
        found = re.match(r'\s*#\s*include\s*(<tide/([^>]+)>|"([^"]+)")', line)
        if not found:
            continue
        if found.group(3):
            yield number, f'write #include <tide/...>, not "{found.group(3)}"'
            continue
        target = found.group(2)
        if target not in names:
            yield number, f"includes <tide/{target}>, which does not exist"
        if name.endswith(".hpp") and target.endswith(".cuh"):
            yield number, f"a .hpp compiles with a host compiler and cannot include <tide/{target}>"
        if layer is None:
            if not is_public(target):
                yield number, f"<tide/{target}> belongs to its layer"
            continue
        there = layer_of(target)
        if there is None:
            if target != "version.hpp":
                yield number, f"a layer does not include <tide/{target}>"
        elif there not in LAYERS or layer not in LAYERS:
            yield number, f"layers are {', '.join(LAYERS)}"
        elif not may_include(layer, there):
            yield number, f"layer {layer} may not include {there}: <tide/{target}>"
        elif not is_public(target) and there != layer:
            yield number, f"<tide/{target}> belongs to layer {there} and is included from there only"

    for number, line in enumerate(code, 1):
        if re.search(r"\busing\s+namespace\b", line):
            yield number, "no 'using namespace' in a header"
        if re.search(r"\bnamespace\s*(\{|$)", line):
            yield number, "no anonymous namespace in a header"
        for outer in re.findall(r"^\s*(?:inline\s+)?namespace\s+([\w:]+)", line):
            if outer.split("::")[0] not in ("tide", "detail", "std"):
                yield number, f"namespaces are tide and tide::detail, not '{outer}'" if layer != "models" else ""
        found = re.match(r"\s*#\s*define\s+(\w+)", line)
        if found and (name not in MACRO_HOMES or not found.group(1).startswith("TIDE_")):
            yield number, f"macro {found.group(1)}: macros begin with TIDE_ and lie in {' or '.join(MACRO_HOMES)}"
        if re.match(r"\s*#\s*(el)?if", line) and name != "core/config.hpp" and is_public(name):
            for word in re.findall(r"\b_[_A-Z]\w*", line):
                if not NEUTRAL.fullmatch(word):
                    yield number, f"asks for a compiler or architecture ({word}); only core/config.hpp and detail/ may"

    if is_public(name):
        if len(lines) > MOST_LINES and not re.search(r"^// length: \S", text, re.MULTILINE):
            yield len(lines), f"{len(lines)} lines; over {MOST_LINES} needs a line '// length: REASON'"
        paths = re.findall(r"\btests/[\w./-]*\w", text)
        if not paths:
            yield 1, "does not name its test (tests/...)"
        for path in paths:
            if not (root / path).exists():
                yield 1, f"names {path}, which does not exist"


def check_umbrella(name, text, wanted):
    """Yields problems of tide.hpp or tide.cuh: it includes all of `wanted`, in layer order."""
    included = re.findall(r"^\s*#\s*include\s*<tide/([^>]+)>", text, re.MULTILINE)
    for header in wanted:
        if header not in included:
            yield 1, f"does not include <tide/{header}>"
    order = [LAYERS.index(layer_of(h)) for h in included if layer_of(h) in LAYERS]
    if order != sorted(order):
        yield 1, f"includes must stand in layer order: {', '.join(LAYERS)}"
    for header in {h for h in included if included.count(h) > 1}:
        yield 1, f"includes <tide/{header}> more than once"


def cycles(graph):
    """Yields each cycle of includes once; `#pragma once` would hide them."""
    state = {}

    def visit(name, path):
        state[name] = "open"
        for target in graph.get(name, ()):
            if state.get(target) == "open":
                yield path[path.index(target):] + [target] if target in path else [name, target]
            elif target not in state:
                yield from visit(target, path + [target])
        state[name] = "done"

    for name in graph:
        if name not in state:
            yield from visit(name, [name])


def main():
    root = pathlib.Path(sys.argv[1])
    base = root / "include/tide"
    texts = {
        path.relative_to(base).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(base.rglob("*"))
        if path.is_file()
    }
    problems = []

    def add(name, found):
        problems.extend(f"include/tide/{name}:{number}: {problem}" for number, problem in found if problem)

    for name, text in texts.items():
        if not name.endswith((".hpp", ".cuh")):
            add(name, [(1, "headers end in .hpp or .cuh")])
            continue
        if layer_of(name) is None and name not in ("tide.hpp", "tide.cuh", "version.hpp"):
            add(name, [(1, "belongs into a layer's folder")])
        if layer_of(name) not in LAYERS + [None]:
            add(name, [(1, f"layers are {', '.join(LAYERS)}")])
        add(name, check(name, text, texts, root))

    public = [name for name in texts if layer_of(name) in LAYERS and is_public(name)]
    host = [name for name in public if name.endswith(".hpp")]
    device = [name for name in public if name.endswith(".cuh")]
    if "tide.hpp" in texts:
        add("tide.hpp", check_umbrella("tide.hpp", texts["tide.hpp"], ["version.hpp"] + host))
    else:
        add("tide.hpp", [(1, "is missing")])
    if "tide.cuh" in texts:
        add("tide.cuh", check_umbrella("tide.cuh", texts["tide.cuh"], ["tide.hpp"] + device))
    elif device:
        add("tide.cuh", [(1, "is missing")])

    # The bodies of a public header lie in its layer's detail/, include it, and are included by it as its last line.
    graph = {
        name: [
            target
            for target in re.findall(r"^\s*#\s*include\s*<tide/([^>]+)>", text, re.MULTILINE)
            if is_public(name) or not is_public(target)
        ]
        for name, text in texts.items()
    }
    problems += ["headers include each other: " + " -> ".join(cycle) for cycle in cycles(graph)]

    if problems:
        sys.exit("\n".join(problems) + f"\n{len(problems)} problems in {len(texts)} headers")
    print(f"{len(texts)} headers keep the rules")


if __name__ == "__main__":
    main()
