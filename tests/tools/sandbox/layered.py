"""Runs a shell script as a user, confined by words: started by root's interpreter, which that user may not be able to read."""

import importlib
import json
import os
import sys

TOLD = json.loads(sys.argv[1])
sys.path.append(TOLD["confine"])
confine = importlib.import_module("confine")


def stay(child, _is_command):
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 255)


if TOLD["user"] != os.geteuid():
    os.setgroups([])
    os.setresgid(TOLD["user"], TOLD["user"], TOLD["user"])
    os.setresuid(TOLD["user"], TOLD["user"], TOLD["user"])
    # A program of this user that was started normally has this flag.
    confine._libc.prctl(4, 1, 0, 0, 0)
os.chdir(TOLD["work"])
confine.confine(TOLD["words"], stay)
os.dup2(1, 2)
os.execv("/bin/bash", ["/bin/bash", "--noprofile", "--norc", "-c", TOLD["script"]])
