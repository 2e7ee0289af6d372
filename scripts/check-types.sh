#!/bin/sh
# Runs basedpyright on the given folders, or on all that pyproject.toml names. If these and all that they may import are as
# they were when they were last found right, it says so instead: the check takes as long as some hundred tests.
set -eu
cd "$(dirname "$0")/.." || exit 2
stamps=.venv/types-right
name=$(printf '%s' "${*:-all}" | tr -c 'A-Za-z0-9\n' '-')

# The benchmarks import what the tests share.
support=tests
[ $# -eq 0 ] || support=tests/support

# Checksums and names of the sources and settings, and the names and versions of the installed packages.
now=$({
    cksum pyproject.toml scripts/check-types.sh
    find kimi_tui bench $support "$@" -name '*.py' -o -name '*.pyi' | LC_ALL=C sort -u | xargs cksum
    ls -d .venv/lib/python*/site-packages/*
} | cksum)
if [ "$(cat "$stamps-$name" 2>/dev/null)" = "$now" ]; then
    echo "types: nothing has changed since they were found right"
    exit 0
fi
rm -f "$stamps-$name"
# With more room for young objects Node collects garbage less often, which saves a tenth of the time.
NODE_OPTIONS="--max-semi-space-size=64 ${NODE_OPTIONS:-}" .venv/bin/basedpyright "$@"
printf '%s\n' "$now" > "$stamps-$name"
