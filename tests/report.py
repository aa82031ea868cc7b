#!/usr/bin/env python3
"""What scripts/report-tests counts, from logs such as meson writes, and that scripts/test never
counts the logs of an earlier run.

usage: report.py SCRIPTS_FOLDER
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CHECK = "{}%: Checks: {}, Failures: {}, Errors: {}\n"
SCRIPTS = pathlib.Path(sys.argv[1])


def write_logs(folder, log, tests, planned=None):
    """tests: [(test, result, stdout)], or a string for a line as it is."""
    logs = pathlib.Path(folder, "meson-logs")
    logs.mkdir(parents=True)
    if log:
        (logs / log).write_text("".join(
            test if isinstance(test, str) else json.dumps(
                {"name": test[0], "result": test[1], "stdout": test[2], "stderr": "why\n"}) + "\n"
            for test in tests))
    planned = len(tests) if planned is None else planned
    (logs / "planned.txt").write_text("a test\n" * planned)


def report(cases):
    """Runs it on {name: what write_logs takes}."""
    with tempfile.TemporaryDirectory() as folder:
        for name, logs in cases.items():
            write_logs(pathlib.Path(folder, name), *logs)
        run = subprocess.run([sys.executable, SCRIPTS / "report-tests",
                              *(f"{name}={pathlib.Path(folder, name)}" for name in cases)],
                             capture_output=True, text=True, check=False)
    assert run.stderr == "", run.stderr
    return run.returncode, run.stdout.splitlines()


def expect(cases, code, *lines):
    got_code, got = report(cases)
    assert got_code == code, f"exit code {got_code}, not {code}: {got}"
    for line in lines:
        assert line in [" ".join(g.split()) for g in got], f"no line '{line}' in {got}"
    assert " ".join(got[-1].split()) == lines[-1], f"last line {got[-1]}, not {lines[-1]}"


log = "testlog.json"
good = ("good", "OK", CHECK.format(100, 7, 0, 0))
expect({"a": (log, [good, ("script", "OK", "")])}, 0, "0 skipped", "8 passed, 0 failed")
expect({"a": ("testlog-valgrind.json", [good])}, 0, "a: 7 passed 0 failed", "7 passed, 0 failed")
expect({"a": (log, [good]), "b": (None, [])}, 1,
       "FAILED b: the build did not get to its tests", "7 passed, 1 failed")
expect({"a": (None, [], 3)}, 1, "FAILED a: 0 of 3 tests ran to their end", "0 passed, 1 failed")
expect({"a": (log, [], 3)}, 1, "FAILED a: 0 of 3 tests ran to their end", "0 passed, 1 failed")
expect({"a": (log, [good], 3)}, 1, "FAILED a: 1 of 3 tests ran to their end", "7 passed, 1 failed")
expect({"a": (log, [good, '{"name": "to', ]), "b": (log, [good])}, 1,
       "FAILED a: 1 of 2 tests ran to their end", "14 passed, 1 failed")
expect({"a": (log, [("bad", "FAIL", CHECK.format(60, 5, 1, 1))])}, 1, "FAILED a: bad (FAIL)",
       "why", "3 passed, 2 failed")
expect({"a": (log, [("slow", "TIMEOUT", ""), ("leaks", "FAIL", CHECK.format(100, 3, 0, 0))])}, 1,
       "FAILED a: slow (TIMEOUT)", "3 passed, 2 failed")
expect({"a": (log, [("avx512", "SKIP", "SKIP: no AVX-512 here\n"),
                    ("part", "OK", "SKIP: one case\n" + CHECK.format(100, 2, 0, 0))])}, 0,
       "skipped a: avx512 (no AVX-512 here)", "skipped a: part (one case)", "2 skipped",
       "2 passed, 0 failed")


def stub(folder, name, code):
    path = pathlib.Path(folder, name)
    path.write_text(f"#!/bin/sh\n{code}\n")
    path.chmod(0o755)


BUILDS = ("gcc", "clang", "sanitize", "valgrind", "aarch64", "armhf", "s390x", "riscv64")


def counted(meson):
    """The exit code and last line of scripts/test where each build has the logs of an earlier
    run, and meson is a script of this text."""
    with tempfile.TemporaryDirectory() as root:
        shutil.copytree(SCRIPTS, pathlib.Path(root, "scripts"))
        for build in BUILDS:
            folder = pathlib.Path(root, "build-test", build)
            write_logs(folder, log, [good])
            (folder / "build.ninja").touch()
        stubs = pathlib.Path(root, "stubs")
        stubs.mkdir()
        stub(stubs, "dpkg-query", "printf installed")
        stub(stubs, "ninja", "exit 0")
        stub(stubs, "meson", meson)
        run = subprocess.run([pathlib.Path(root, "scripts/test")], capture_output=True, text=True,
                             env={**os.environ, "PATH": f"{stubs}:{os.environ['PATH']}"},
                             check=False)
    return run.returncode, run.stdout.splitlines()[-1]


def expect_counted(meson, *result):
    got = counted(meson)
    assert got == result, f"with a meson that does '{meson}': {got}, not {result}"


finishes = """echo '{"name": "a test", "result": "OK"}' >"$3/meson-logs/testlog.json" """
dies = "kill -9 $$"
tests = 'case "$*" in *--list) echo a test ;; test*) %s ;; esac'
expect_counted(tests % finishes, 0, "8 passed, 0 failed")
expect_counted(tests % dies, 1, "0 passed, 8 failed")
expect_counted("exit 1", 1, "0 passed, 8 failed")  # no build is configured
