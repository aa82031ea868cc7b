# SPDX-License-Identifier: MIT
#
# The example in README is, word for word, in the example program that is built and run.
#
# usage: readme.py README.md EXAMPLE.c
import re
import sys

readme, example = (open(name, encoding="utf-8").read() for name in sys.argv[1:])
blocks = re.findall(r"^```c\n(.*?)^```", readme, re.S | re.M)
if not blocks:
    sys.exit(f"{sys.argv[1]} has no C code")
for block in blocks:
    if block not in example:
        sys.exit(f"{sys.argv[2]} lacks this code of {sys.argv[1]}:\n{block}")
print(f"{len(blocks)} block(s) of code")
