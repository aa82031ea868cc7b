#!/usr/bin/env python3
"""What scripts/report-tests counts, from logs such as meson writes.

usage: report.py PATH_OF_REPORT_TESTS
"""
import json
import pathlib
import subprocess
import sys
import tempfile

CHECK = "{}%: Checks: {}, Failures: {}, Errors: {}\n"


def report(cases):
    """Runs it on {name: (log's file name or None, [(test, result, stdout)])}."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = []
        for name, (log, tests) in cases.items():
            logs = pathlib.Path(folder, name, "meson-logs")
            logs.mkdir(parents=True)
            if log:
                (logs / log).write_text("".join(
                    json.dumps({"name": t, "result": r, "stdout": s, "stderr": "why\n"}) + "\n"
                    for t, r, s in tests))
            arguments.append(f"{name}={logs.parent}")
        run = subprocess.run([sys.executable, sys.argv[1], *arguments], capture_output=True,
                             text=True, check=False)
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
       "FAILED b: no test log, the build did not get to its tests", "7 passed, 1 failed")
expect({"a": (log, [])}, 1, "FAILED a: its log has no tests", "0 passed, 1 failed")
expect({"a": (log, [("bad", "FAIL", CHECK.format(60, 5, 1, 1))])}, 1, "FAILED a: bad (FAIL)",
       "why", "3 passed, 2 failed")
expect({"a": (log, [("slow", "TIMEOUT", ""), ("leaks", "FAIL", CHECK.format(100, 3, 0, 0))])}, 1,
       "FAILED a: slow (TIMEOUT)", "3 passed, 2 failed")
expect({"a": (log, [("avx512", "SKIP", "SKIP: no AVX-512 here\n"),
                    ("part", "OK", "SKIP: one case\n" + CHECK.format(100, 2, 0, 0))])}, 0,
       "skipped a: avx512 (no AVX-512 here)", "skipped a: part (one case)", "2 skipped",
       "2 passed, 0 failed")
