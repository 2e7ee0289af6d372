"""Runs a program confined by the words in a file, as a user: `confined.py FOLDER_OF_CONFINE USER WORK WORDS PROGRAM...`.

The interpreter may lie where that user cannot read it: all that is needed is loaded before.
"""

import importlib
import os
import sys

folder, user, work, words, *program = sys.argv[1:]
sys.path.append(folder)
confine = importlib.import_module("confine")
with open(words, "rb") as file:
    told = os.fsdecode(file.read()).split("\0")


def stay(child, _is_command):
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 255)


if int(user) != os.geteuid():
    os.setgroups([])
    os.setresgid(int(user), int(user), int(user))
    os.setresuid(int(user), int(user), int(user))
    confine._libc.prctl(4, 1, 0, 0, 0)
os.chdir(work)
confine.confine(told, stay)
os.execv(program[0], program)
