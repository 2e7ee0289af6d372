#!/bin/sh
# Runs pytest with the given arguments. If only a few tests fail, as may happen on a busy machine, these tests run once
# more without any others beside them. The exit code of the script is that of the last run.
set -u
cd "$(dirname "$0")/.." || exit 2
pytest=.venv/bin/pytest
failed=.pytest_cache/v/cache/lastfailed
few=20

"$pytest" --cache-clear "$@"
code=$?
[ "$code" -eq 1 ] && [ -f "$failed" ] || exit "$code"
n=$(grep -c ': true' "$failed")
[ "$n" -ge 1 ] && [ "$n" -le "$few" ] || exit "$code"
echo "$n failed beside others: once more alone"
exec "$pytest" "$@" --last-failed -n 0
