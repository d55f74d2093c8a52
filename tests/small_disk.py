"""Commands on a disk that is full, and then larger, or that can only be read: a real one, mounted
where nothing else sees it.

Run by ``unshare -Urm``, which needs no rights, with a JSON text on the command line:
``disk``, an empty folder; ``steps``, a list of a size, such as "40k" or "ro", and the arguments of
the command that is tried then; ``copy``, a folder that does not exist, for what is on the disk at
the end. Steps after one that succeeded at a size are left out, up to the next command. Prints a
JSON list of size, exit code and output.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest


def possible():
    """Whether this machine lets a process mount a disk of its own."""
    if shutil.which("unshare") is None:
        return False
    test = ["unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(test, capture_output=True, check=False).returncode == 0


needs_small_disks = pytest.mark.skipif(not possible(), reason="no disk can be mounted here")


def on_a_small_disk(folder, steps):
    """Run the steps; ``DISK`` in their arguments stands for the disk.

    Returns what each step gave, and the folder with what was on the disk at the end.
    """
    disk, copy = folder / "disk", folder / "copy"
    disk.mkdir()
    steps = [(s, [str(a).replace("DISK", str(disk)) for a in args]) for s, args in steps]
    task = json.dumps({"disk": str(disk), "steps": steps, "copy": str(copy)})
    done = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-m", "tests.small_disk", task],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(row) for row in json.loads(done.stdout.splitlines()[-1])], copy


def mount(disk, *options):
    subprocess.run(["mount", *options, disk], check=True)


def main():
    from typer.testing import CliRunner

    from spdnet.cli import app

    task = json.loads(sys.argv[1])
    disk = task["disk"]
    mount(disk, "-t", "tmpfs", "-o", "size=4k", "tmpfs")
    os.chdir(disk)
    found, done = [], None
    for size, arguments in task["steps"]:
        if arguments == done:
            continue
        mount(disk, "-o", "remount,ro" if size == "ro" else f"remount,rw,size={size}")
        result = CliRunner().invoke(app, arguments)
        error = result.exception
        if error is not None and not isinstance(error, SystemExit):
            raise error
        found.append((size, result.exit_code, result.output))
        done = arguments if result.exit_code == 0 else None
    shutil.copytree(disk, task["copy"])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
