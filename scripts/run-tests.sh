#!/bin/sh
# Runs pytest with the arguments given. Where few tests fail, as they may on a machine that others keep busy, these are
# run once more with the machine to themselves, and only what fails then has failed: its exit code is that of this script.
set -u
cd "$(dirname "$0")/.." || exit 2
pytest=.venv/bin/pytest
failed=.pytest_cache/v/cache/lastfailed
few=5

"$pytest" --cache-clear "$@"
code=$?
[ "$code" -eq 1 ] && [ -f "$failed" ] || exit "$code"
n=$(grep -c ': true' "$failed")
[ "$n" -ge 1 ] && [ "$n" -le "$few" ] || exit "$code"
echo "$n failed beside others: once more alone"
exec "$pytest" "$@" --last-failed -n 0
