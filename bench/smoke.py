#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a few benchmarks for a moment and checks that their figures are there. Takes the path
of mha_bench. Says nothing about speed."""
import json
import math
import os
import shlex
import subprocess
import sys

# Meson sets the variable in cross builds: the emulator.
command = shlex.split(os.environ.get('MESON_EXE_WRAPPER', '')) + sys.argv[1:]


def run(*flags):
    result = subprocess.run(command + list(flags), stdout=subprocess.PIPE, check=True)
    return result.stdout.decode()


names = run('--benchmark_list_tests').split()
isas = [name.split('/')[1] for name in names if name.startswith('peak/')]
assert 'scalar' in isas, names
assert 'bandwidth/read' in names, names
wanted = {
    'peak/{}': ['GFLOP/s', 'of_peak', 'vs_scalar'],
    'gemm/{}/8x512x512': ['GFLOP/s', 'of_peak', 'vs_scalar'],
    'gemm/{}/1x768x768': ['GFLOP/s', 'GB/s', 'of_peak', 'of_fma', 'vs_scalar'],
    'softmax/{}/12x100': ['GFLOP/s', 'cycles/element', 'of_peak', 'vs_scalar'],
    'exp/{}/2048': ['cycles/element', 'of_peak', 'vs_scalar'],
    'pack/{}/16x64': ['GB/s', 'of_peak', 'vs_scalar'],
    'attention/{}/s32_h8_d64': ['GFLOP/s', 'of_peak', 'vs_scalar'],
    'forward/{}/b1_s16_d512_h8': ['GFLOP/s', 'of_peak', 'vs_scalar'],
    'forward/{}/b1_s1_d768_h12': ['GFLOP/s', 'GB/s', 'of_peak', 'of_fma', 'vs_scalar'],
    'create/d384_h12': ['GB/s', 'of_peak'],
}
expected = {pattern.format(isa): counters for isa in isas for pattern, counters in wanted.items()}
report = json.loads(run('--benchmark_format=json', '--benchmark_min_time=0.001',
                        '--benchmark_filter=^({})$'.format('|'.join(expected))))
assert report['context']['isas'].split() == isas, report['context']
seen = {}
for result in report['benchmarks']:
    assert not result.get('error_occurred'), result
    seen[result['name']] = result
assert set(seen) == set(expected), set(seen) ^ set(expected)
for name, counters in expected.items():
    assert name in names, name
    assert 0 <= seen[name]['quiet'] <= 1, (name, seen[name])
    for counter in counters + ['IPC']:
        value = seen[name].get(counter)
        assert value is not None and math.isfinite(value) and value > 0, (name, counter, value)
print('{} benchmarks on {}: all figures there'.format(len(seen), ', '.join(isas)))
