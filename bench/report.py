#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs mha_bench a few times and prints its ISAs side by side. scripts/bench calls it.

Every figure is the median over the passes; ratios are formed within one process, by mha_bench
itself. If another thread was on the core, a benchmark is measured again, a few times at most.
Progress goes to stderr, the table to stdout, a summary to bench/results/.
"""
import argparse
import datetime
import json
import os
import re
import signal
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

# Slow shapes that add little to the others.
SKIPPED = r'attention/.*/s8192_h8_d(32|128)$'

# Title, family, which of its shapes, the figure shown, its unit, what `of_peak` is a share of.
TABLES = [
    ('Matrix product (M x N x K)', 'gemm', r'(?!1x)', 'GFLOP/s', 'GFLOP/s', 'FMA peak'),
    ('The same, one row', 'gemm', r'1x', 'GB/s', 'GB/s of weights', 'reading them'),
    ('Attention (s keys, h heads, d head_dim)', 'attention', '', 'GFLOP/s', 'GFLOP/s',
     'FMA peak'),
    ('Layer (b batch, s length, d d_model, h heads)', 'forward', r'(?!b1_s1_)', 'GFLOP/s',
     'GFLOP/s', 'FMA peak'),
    ('The same, one row', 'forward', r'b1_s1_', 'GB/s', 'GB/s of weights', 'reading them'),
    ('Softmax (rows x keys)', 'softmax', '', 'cycles/element', 'cycles an element', 'FMA peak'),
    ('exp (elements)', 'exp', '', 'cycles/element', 'cycles an element', 'FMA peak'),
    ('Packing (rows x columns)', 'pack', '', 'GB/s', 'GB/s', 'memcpy'),
    ('Creating a layer', 'create', '', 'GB/s', 'GB/s', 'memcpy to new memory'),
]


def run_json(command):
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                     check=True).stdout.decode())


def split_name(name):
    """'gemm/avx2/8x512x512' to family, shape, ISA; 'bandwidth/read' has no ISA."""
    parts = name.split('/')
    if parts[0] == 'bandwidth':
        return parts[0], parts[1], 'best'
    return parts[0], '/'.join(parts[2:]), parts[1]


# A result is quiet if most of its slices were, and if the core executed at least this share of
# the integer operations per cycle of the best tenth of results. As in measure.c, across processes.
QUIET = 0.93


def quiet_only(results, best_ipc):
    return [r for r in results if r['quiet'] >= 0.5 and r['IPC'] >= QUIET * best_ipc]


def ipc_of(samples):
    seen = sorted(result['IPC'] for results in samples.values() for result in results)
    return seen[-1 - len(seen) // 10]


def run_pass(binary, names, min_time, label, samples):
    """One run of the benchmarks, a process for each family; gives the context."""
    context = None
    for family in dict.fromkeys(name.split('/')[0] for name in names):
        mine = [name for name in names if name.split('/')[0] == family]
        print('{}: {} ({} benchmarks)'.format(label, family, len(mine)), file=sys.stderr,
              flush=True)
        report = run_json([binary, '--benchmark_format=json',
                           '--benchmark_min_time={}'.format(min_time),
                           '--benchmark_filter=^({})$'.format('|'.join(mine))])
        context = report['context']
        for result in report['benchmarks']:
            samples.setdefault(result['name'], []).append(result)
    return context


def run_passes(binary, passes, again, min_time, full):
    listed = subprocess.run([binary, '--benchmark_list_tests'], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, check=True)
    names = [name for name in listed.stdout.decode().split()
             if full or not re.match(SKIPPED, name)]
    samples, context = {}, {}
    for number in range(1, passes + 1):
        context = run_pass(binary, names, min_time, 'pass {} of {}'.format(number, passes), samples)
    for number in range(1, again + 1):
        disturbed = [name for name in names
                     if len(quiet_only(samples[name], ipc_of(samples))) < passes]
        if not disturbed:
            break
        run_pass(binary, disturbed, min_time, 'disturbed, again ({} of {} at most)'
                 .format(number, again), samples)
    return samples, context


# What Google Benchmark writes itself beside our counters.
NOT_OURS = {'family_index', 'per_family_instance_index', 'repetitions', 'repetition_index',
            'threads', 'iterations', 'cpu_time', 'real_time'}


def fma_peak(families, isa):
    """GFLOP/s, the median of the rates measured beside the benchmarks that are compared with it:
    more measurements, over a longer time, than those of peak/<isa>."""
    seen = [by_isa[isa]['GFLOP/s'] / by_isa[isa]['of_peak']
            for family in ['peak', 'gemm', 'attention', 'forward']
            for by_isa in families.get(family, {}).values() if 'GB/s' not in by_isa[isa]]
    return float('{:.4g}'.format(statistics.median(seen)))


def summarise(samples, context, passes):
    families = {}
    best_ipc = ipc_of(samples)
    for name, results in samples.items():
        family, shape, isa = split_name(name)
        quiet = quiet_only(results, best_ipc)
        results = quiet or results
        counters = [key for key, value in results[0].items()
                    if isinstance(value, (int, float)) and key not in NOT_OURS]
        figures = {key: float('{:.4g}'.format(statistics.median(r[key] for r in results)))
                   for key in counters}
        figures['quiet_results'] = len(quiet)
        families.setdefault(family, {}).setdefault(shape, {})[isa] = figures
    keys = ['cpu', 'isas', 'scalar_fma', 'compiler', 'libmha', 'pinned_to_core']
    summary = {key: context[key] for key in keys}
    summary['isas'] = summary['isas'].split()
    commit = subprocess.run(['git', '-C', HERE, 'describe', '--always', '--dirty'],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    summary['commit'] = commit.stdout.decode().strip()
    summary['date'] = datetime.date.today().isoformat()
    summary['passes'] = passes
    summary['fma_peak'] = {isa: fma_peak(families, isa) for isa in summary['isas']}
    summary['results'] = families
    return summary


def number(value):
    return '{:.0f}'.format(value) if value >= 99.95 else '{:.3g}'.format(value)


def cell(figures, unit, scalar):
    if figures is None:
        return ['', '', '']
    times = '' if scalar else '{:.1f}x'.format(figures['vs_scalar'])
    mark = '' if figures['quiet_results'] else '~'
    return [mark + number(figures[unit]), '{:.0f} %'.format(100 * figures['of_peak']), times]


def rows_of(summary, family, pattern, unit):
    """[shape, [value, share, speed-up] per ISA] for each shape."""
    shapes = summary['results'].get(family, {})
    for shape, by_isa in shapes.items():
        if re.match(pattern, shape):
            yield shape, [cell(by_isa.get(isa), unit, isa == 'scalar')
                          for isa in summary['isas']]


def headline(summary):
    results = summary['results']
    alone = results['peak']['']
    peaks = ', '.join('{} {} ({})'.format(isa, number(peak), number(alone[isa]['GFLOP/s']))
                      for isa, peak in summary['fma_peak'].items())
    reads = results['bandwidth']
    disturbed = sum(f['quiet_results'] == 0 for shapes in results.values()
                    for by_isa in shapes.values() for f in by_isa.values())
    return [
        '{cpu}, one core, {compiler}, libmha {libmha} ({commit}), {date}, passes: {passes}'
        .format(**summary),
        'FMA peak beside the benchmarks (alone) in GFLOP/s: ' + peaks,
        'Read bandwidth in GB/s: ' + ', '.join(
            '{} {}'.format({'read': '256 MB', 'read_64mb': '64 MB', 'read_1mb': '1 MB'}[where],
                           number(by_isa['best']['GB/s'])) for where, by_isa in reads.items()),
    ] + ['~: never measured without a neighbour on the core'] * (disturbed > 0)


def print_text(summary):
    for line in headline(summary):
        print(line)
    for title, family, pattern, figure, unit, yardstick in TABLES:
        rows = list(rows_of(summary, family, pattern, figure))
        if not rows:
            continue
        print('\n{}: {}, share of {}, speed-up over scalar'.format(title, unit, yardstick))
        print(' ' * 20 + ''.join('{:^22}'.format(isa) for isa in summary['isas']).rstrip())
        for shape, cells in rows:
            print('{:20}'.format(shape) +
                  ''.join('{:>8}{:>7}{:>7}'.format(*c) for c in cells).rstrip())


def print_markdown(summary):
    print('.  \n'.join(headline(summary)) + '.')
    for title, family, pattern, figure, unit, yardstick in TABLES:
        rows = list(rows_of(summary, family, pattern, figure))
        if not rows:
            continue
        print('\n{}: {} (share of {}, speed-up over scalar)\n'.format(title, unit, yardstick))
        print('| |' + ''.join(' {} |'.format(isa) for isa in summary['isas']))
        print('|---|' + '---:|' * len(summary['isas']))
        for shape, cells in rows:
            texts = ['{} ({})'.format(c[0], ', '.join(x for x in c[1:] if x)) if c[0] else ''
                     for c in cells]
            print('| {} | {} |'.format(shape, ' | '.join(texts)))


def result_path(summary):
    name = re.sub(r'\((R|TM)\)', '', summary['cpu'], flags=re.I)
    slug = re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')
    return os.path.join(HERE, 'results', '{}-{}.json'.format(summary['date'], slug))


def at_least(least):
    def convert(text):
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(
                '{!r} is not a whole number from {} on'.format(text, least))
        return int(text)
    return convert


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # ends quietly before `head`
    parser = argparse.ArgumentParser(prog='scripts/bench', description=__doc__.split('\n')[0])
    parser.add_argument('--binary', help=argparse.SUPPRESS)
    parser.add_argument('--passes', type=at_least(1), default=3,
                        help='runs of everything (default 3)')
    parser.add_argument('--again', type=at_least(0), default=6,
                        help='more runs, of what was disturbed, at most (default 6)')
    parser.add_argument('--min-time', type=float, default=0.05,
                        help='seconds for each benchmark and pass, at least (default 0.05)')
    parser.add_argument('--full', action='store_true', help='the slowest shapes too')
    parser.add_argument('--markdown', action='store_true', help='print the tables as Markdown')
    parser.add_argument('--from', dest='source', metavar='FILE',
                        help='print what an earlier run wrote to bench/results/; run nothing')
    options = parser.parse_args()
    if options.source:
        try:
            with open(options.source, encoding='utf-8') as file:
                summary = json.load(file)
        except (OSError, ValueError) as error:
            parser.error('can\'t read {}: {}'.format(options.source, error))
    else:
        load = os.getloadavg()[0]
        if load > 0.5:
            print('warning: load average {:.1f}: others are at work on this machine, and the '
                  'figures will suffer'.format(load), file=sys.stderr)
        samples, context = run_passes(options.binary, options.passes, options.again,
                                      options.min_time, options.full)
        summary = summarise(samples, context, options.passes)
        path = result_path(summary)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + '.tmp', 'w', encoding='utf-8') as file:
            json.dump(summary, file, indent=1)
            file.write('\n')
        os.replace(path + '.tmp', path)
        print('written: ' + os.path.relpath(path), file=sys.stderr)
    (print_markdown if options.markdown else print_text)(summary)


if __name__ == '__main__':
    main()
