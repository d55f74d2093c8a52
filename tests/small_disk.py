"""Run commands on a tmpfs of limited size, or read-only, in a private mount namespace.

The module is run by ``unshare -Urm``, which needs no privileges, with one JSON argument:
``disk``, an empty folder to mount on; ``steps``, a list of pairs of a size ("40k", or "ro" for
read-only) and command arguments; ``copy``, a folder to create with the final content of the disk.
After a command succeeds, its repetitions are skipped. Prints a JSON list of size, exit code and
output.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest


def can_mount():
    """Return whether this machine allows unprivileged mounts."""
    if shutil.which("unshare") is None:
        return False
    test = ["unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(test, capture_output=True, check=False).returncode == 0


needs_small_disks = pytest.mark.skipif(not can_mount(), reason="cannot mount a tmpfs")


def run_on_small_disk(folder, steps):
    """Run the steps, with ``DISK`` in their arguments replaced by the path of the disk.

    Returns size, exit code and output of each step, and a copy of the final content of the disk.
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
