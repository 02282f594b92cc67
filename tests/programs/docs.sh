#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What the docs say that a command prints is what it prints: the blocks behind `<!-- output: COMMAND -->` and, for a
# part of it, `<!-- in output: COMMAND -->`. tests/cmake/check_docs.py reads the other blocks.
#
#   bash docs.sh FOLDER_OF_PROGRAMS

source "$(dirname "$0")/../support/program.sh" "$1"

cp "$tests"/../examples/data/*.json .
ln -s "$tests/../include" "$tests" .
PATH=$(dirname "$program"):$PATH python "$tests" <<'PY'
import pathlib, re, subprocess, sys
sys.dont_write_bytecode = True
tests = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(tests / "cmake"))
from check_docs import blocks, tidy

found = 0
for page in sorted((tests.parent / "docs").rglob("*.md")):
    for number, language, content, before in blocks(page.read_text(encoding="utf-8").splitlines()):
        mark = re.fullmatch(r"<!--\s*(in output|output): (.+?)\s*-->", before)
        if not mark:
            continue
        found += 1
        done = subprocess.run(mark.group(2).split(), capture_output=True, text=True)
        if mark.group(1) == "output":
            assert done.returncode == 0 and tidy(done.stdout.splitlines()) == tidy(content), (page.name, number, done)
        else:  # without the folders of files
            printed = re.sub(r"[^\s:]*/", "", done.stdout + done.stderr)
            missing = [line for line in tidy(content) if line not in printed]
            assert not missing, (page.name, number, missing, printed[:2000])
assert found >= 3, found
PY

verdict
