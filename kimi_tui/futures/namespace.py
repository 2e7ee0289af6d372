"""Starts the process of a future among other mounts: enters a mount namespace, lays the files of the future over the work folder, and becomes the program.

An interpreter without the site module runs this before anything else is imported: a process with threads cannot enter a
namespace, and everything that is imported later comes from the files of the future where it lies in the work folder. So it imports
only `confine` from the package.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence

else:
    import _signal as signal

_BEGIN = (
    "import sys; sys.path.extend(sys.argv[1:3]); import namespace; namespace.begin(sys.argv[3:])"
)


def beginning(words: int, parent: int, command: "Sequence[str]") -> list[str]:
    """Return the arguments that start a program among other mounts.

    Args:
        words: the descriptor of a file with the words for `confine`; negative to mount nothing.
        parent: the process with which it ends.
        command: the full path of the program, and its arguments.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    sandbox = os.path.join(os.path.dirname(here), "tools", "sandbox")
    how = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BEGIN, here, sandbox]
    return [*how, str(words), str(parent), *command]


def _stay(_child: int, _is_command: bool) -> None:
    """Never called: a view needs no process below this one."""


def begin(arguments: "list[str]") -> None:
    """Carry out the arguments of `beginning`; does not return. What goes wrong is one line on standard error, with the exit code 125."""
    words, parent, command = int(arguments[0]), int(arguments[1]), arguments[2:]
    try:
        # The folder of that module is on the path; the package itself is not imported.
        __import__("confine")
        confine = sys.modules["confine"]
        if words >= 0:
            with open(words, "rb") as file:
                told = [os.fsdecode(one) for one in file.read().split(b"\0")]
            confine.confine(told, _stay)
        if sys.platform == "linux":
            # A user namespace resets it, so it comes last. The program stops in order on this signal.
            confine.end_with_parent(int(signal.SIGTERM))
        if os.getppid() != parent:
            os._exit(1)
        os.execv(command[0], command)
    except OSError as error:
        sys.stderr.write(
            f"The files of the future cannot be laid over the work folder: {error.strerror or error}.\n"
        )
        sys.stderr.flush()
        os._exit(125)
