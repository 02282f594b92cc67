# SPDX-License-Identifier: Apache-2.0
"""The docs show what is tested: check_docs.py REPOSITORY

Each ```cpp, ```cmake, ```json and ```text block of README.md and docs/**.md follows one of these lines:

  <!-- snippet: NAME -->    it equals, de-indented, the lines between `// snippet: NAME` and `// end: NAME` of one file
                            under tests/ or examples/; in CMake `#` begins the marks, and what stands there as
                            ${CONSUMER_TIDE} reads /path/to/tide here
  <!-- file: PATH -->       it is a file under tests/ or examples/
  <!-- line of: PATH -->    its lines are in that file, `# comments` left out
  <!-- output: COMMAND -->  it is what a program prints, <!-- in output: COMMAND --> a part of it; the test
                            programs/docs runs the command and compares

A cpp block is a snippet. Relative links lead to files, and their #anchors to headings. README.md begins with two ```sh
blocks of one line each: run, test.
"""

import pathlib
import re
import sys
import textwrap

MARK = re.compile(r"^\s*(?://|#)\s*(snippet|end): (\S+)\s*$")
CPP_ALIASES = ("c++", "cc", "cxx", "cu", "cuda", "hpp")


def tidy(lines):
    return [line.rstrip() for line in textwrap.dedent("\n".join(lines)).strip("\n").split("\n")]


def regions(root, problems):
    """NAME -> (lines, place) of all named regions."""
    found = {}
    for folder in ("tests", "examples"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".cpp", ".hpp", ".cu", ".cuh", ".cmake") and path.name != "CMakeLists.txt":
                continue
            open_regions = {}
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                mark = MARK.match(line)
                place = f"{path.relative_to(root)}:{number}"
                if not mark:
                    for lines in open_regions.values():
                        lines.append(line)
                elif mark.group(1) == "snippet":
                    if mark.group(2) in found or mark.group(2) in open_regions:
                        problems.append(f"{place}: snippet {mark.group(2)} is there twice")
                    open_regions[mark.group(2)] = []
                elif mark.group(2) in open_regions:
                    lines = [text.replace("${CONSUMER_TIDE}", "/path/to/tide") for text in open_regions.pop(mark.group(2))]
                    found[mark.group(2)] = (tidy(lines), place)
                else:
                    problems.append(f"{place}: 'end: {mark.group(2)}' without 'snippet: {mark.group(2)}'")
            for name in open_regions:
                problems.append(f"{path.relative_to(root)}: snippet {name} has no '// end: {name}'")
    return found


def blocks(lines):
    """Yields (line number, language, content, last text line before) of each fenced block."""
    fence, before = None, ""
    for number, line in enumerate(lines, 1):
        found = re.match(r"^\s*(`{3,}|~{3,})\s*([^\s`]*)", line)
        if fence is None and found:
            fence, language, start, content = found.group(1), found.group(2).lower(), number, []
        elif fence is not None and found and found.group(1).startswith(fence) and not found.group(2):
            yield start, language, content, before
            fence, before = None, ""
        elif fence is not None:
            content.append(line)
        elif line.strip():
            before = line.strip()


def prose(lines):
    """The lines with fenced blocks and code spans blanked."""
    inside = None
    for line in lines:
        found = re.match(r"^\s*(`{3,}|~{3,})", line)
        if found and inside is None:
            inside = found.group(1)
            yield ""
        elif found and found.group(1).startswith(inside):
            inside = None
            yield ""
        else:
            yield "" if inside else re.sub(r"`[^`]*`", "", line)


def anchors(path):
    """The anchors that GitHub gives to the headings of a page."""
    found, seen = set(), {}
    inside = False
    for line in path.read_text(encoding="utf-8").splitlines():
        if re.match(r"^\s*(```|~~~)", line):
            inside = not inside
        heading = re.match(r"^#{1,6}\s+(.*?)\s*#*$", line)
        if heading and not inside:
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).replace("`", "")
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            number = seen.get(slug, 0)
            seen[slug] = number + 1
            found.add(f"{slug}-{number}" if number else slug)
        found.update(re.findall(r'<a (?:id|name)="([^"]+)"', line))
    return found


def check_other(root, place, kind, subject, content, problems):
    """A block that is a file, or lines of one. Commands are run by tests/programs/docs.sh."""
    if "output" in kind:
        return
    path = root / subject
    if not subject.startswith(("tests/", "examples/")) or not path.is_file():
        problems.append(f"{place}: {subject} is no file of tests/ or examples/")
        return
    text = path.read_text(encoding="utf-8")
    if kind == "file" and tidy(content) != tidy(text.splitlines()):
        problems.append(f"{place}: differs from {subject}")
    if kind == "line of":
        lines = [re.sub(r"\s+#.*$", "", line) for line in tidy(content)]
        problems.extend(f"{place}: {subject} has no '{line}'" for line in lines if line not in text)


def check_page(path, root, snippets, problems, used):
    name = path.relative_to(root)
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, language, content, before in blocks(lines):
        if language in CPP_ALIASES:
            problems.append(f"{name}:{number}: call the language cpp, not {language}")
        if language not in ("cpp", "cmake", "json", "text"):
            continue
        found = re.fullmatch(r"<!--\s*snippet: (\S+)\s*-->", before)
        other = re.fullmatch(r"<!--\s*(file|line of|output|in output): (.+?)\s*-->", before)
        if language != "cpp" and other:
            check_other(root, f"{name}:{number}", other.group(1), other.group(2), content, problems)
        elif not found:
            problems.append(f"{name}:{number}: a {language} block follows a line <!-- snippet: NAME -->"
                            + ("" if language == "cpp" else ", or one that names a file or a command"))
        elif found.group(1) not in snippets:
            problems.append(f"{name}:{number}: no file of tests/ or examples/ has '// snippet: {found.group(1)}'")
        else:
            used.add(found.group(1))
            wanted, place = snippets[found.group(1)]
            if tidy(content) != wanted:
                problems.append(f"{name}:{number}: differs from snippet {found.group(1)} ({place}), which reads:\n"
                                + textwrap.indent("\n".join(wanted), "    "))
    for number, line in enumerate(prose(lines), 1):
        targets = re.findall(r"\]\(\s*<?([^)\s>]+)", line) + re.findall(r"^\s*\[[^\]]+\]:\s*(\S+)", line)
        targets += re.findall(r'\b(?:src|href)="([^"]+)"', line)
        for target in targets:
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            file, _, anchor = target.partition("#")
            goal = (path.parent / file).resolve() if file else path
            if root not in goal.parents and goal != root:
                problems.append(f"{name}:{number}: the link {target} leads out of the repository")
            elif not goal.exists():
                problems.append(f"{name}:{number}: the link {target} leads nowhere")
            elif anchor and goal.suffix == ".md" and anchor not in anchors(goal):
                problems.append(f"{name}:{number}: {goal.relative_to(root)} has no heading #{anchor}")


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    problems, used = [], set()
    snippets = regions(root, problems)
    pages = [root / "README.md"] + sorted((root / "docs").rglob("*.md"))
    for page in pages:
        if page.exists():
            check_page(page, root, snippets, problems, used)
    if pages[0].exists():
        commands = [content for _, language, content, _ in blocks(pages[0].read_text(encoding="utf-8").splitlines())
                    if language == "sh"][:2]
        if len(commands) < 2 or any(len(lines) != 1 for lines in commands):
            problems.append("README.md: the first two sh blocks are one line each: run the main job, run all tests")
    else:
        problems.append("README.md is missing")

    if problems:
        sys.exit("\n".join(problems) + f"\n{len(problems)} problems on {len(pages)} pages")
    print(f"{len(pages)} pages, {len(used)} snippets")


if __name__ == "__main__":
    main()
