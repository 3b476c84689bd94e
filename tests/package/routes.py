#!/usr/bin/python3
"""Times each way to install sqlite-lm: in a bare Debian root, from nothing to the first labelled rows, with the commands that sql/guide/install.md has.

    debootstrap --variant=minbase --include=ca-certificates bookworm root http://deb.debian.org/debian && tar -cf bookworm.tar -C root .
    tests/package/routes.py build/package/dist bookworm.tar [tarball deb wheel npm source]

As root. Every way gets a fresh copy of the root, runs in it with chroot, and prints a row of a Markdown table: seconds on the clock, seconds of
the processors (user and system, of all that the commands started), and of which apt took; the rows that it ended with must be that page's. What
this machine needs to reach its package mirrors (resolv.conf, apt's configuration, certificates, variables named *_proxy, *_CERT*) is copied.
`source` is what README's "Two commands" says, in a clone of this commit.
"""
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FROM_HERE = ("etc/resolv.conf", "etc/hosts", "etc/apt/apt.conf.d", "usr/local/share/ca-certificates")


def fail(text):
    sys.exit(f"routes.py: {text}")


def commands_of_the_guide():
    """Name -> commands; 'first' makes first.sql, '' is what all print."""
    section = re.search(r"\n## Install it without a compiler\n(.*?)\n## ", (ROOT / "sql/guide/install.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    blocks = re.findall(r"```(\w*)\n(.*?)```", section, re.DOTALL)
    named = {re.match(r"# (\w+)", text)[1]: text for kind, text in blocks if kind == "sh" and text.startswith("# ")}
    named["first"] = next(text for kind, text in blocks if text.startswith("cat >first.sql"))
    named[""] = next(text for kind, text in blocks if kind == "")
    named["source"] = "apt install -y git\ngit clone -q /mnt/source sqlite-lm\ncd sqlite-lm\nbash sql/demo/run.sh\n"
    return named


def seconds_of(root, script, environment):
    """On the clock, of the processors, and what it printed (not its warnings)."""
    def spent():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime
    before, began = spent(), time.monotonic()
    ran = subprocess.run(["chroot", root, "bash", "-e", "-o", "pipefail", "-c", "cd /root\n" + script], capture_output=True,
                         text=True, env=environment)
    took = time.monotonic() - began, spent() - before
    if ran.returncode != 0:
        fail(f"{script}: status {ran.returncode}\n{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}")
    return *took, ran.stdout


def measure(name, commands, dist, base, environment):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        subprocess.run(["tar", "-xf", base, "-C", root], check=True)
        for path in FROM_HERE:
            source, target = pathlib.Path("/") / path, root / path
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            elif source.exists():
                shutil.copy(source, target)
        for package in dist.iterdir():
            shutil.copy(package, root / "root")
        subprocess.run(["git", "clone", "-q", "--bare", ROOT, root / "mnt/source"], check=True)
        mounts = {"/proc": root / "proc", "/dev": root / "dev"}
        try:
            for source, target in mounts.items():
                subprocess.run(["mount", "--bind", source, target], check=True)
            seconds_of(root, "update-ca-certificates\n" + commands["first"], environment)
            lines = commands[name].splitlines()
            apt = seconds_of(root, "\n".join(["apt update"] + [line for line in lines if line.startswith("apt ")]), environment)
            rest = seconds_of(root, "\n".join(line for line in lines if not line.startswith("apt ")), environment)
        finally:
            for target in mounts.values():
                subprocess.run(["umount", target], check=False)
        if name != "source" and not rest[2].rstrip().endswith(commands[""].rstrip()):
            fail(f"{name} printed\n{rest[2]}\nwanted\n{commands['']}")
        print(f"| {name} | {apt[0] + rest[0]:.0f} | {apt[1] + rest[1]:.1f} | {apt[0]:.0f} | {apt[1]:.1f} | {rest[0]:.1f} | {rest[1]:.1f} |", flush=True)


def main():
    if len(sys.argv) < 3 or os.geteuid() != 0:
        fail("as root: routes.py DIST ROOT.tar [route ...]")
    dist, base = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    environment = {"HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TERM": "dumb", "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive",
                   **{name: value for name, value in os.environ.items() if re.search("(?i)_proxy$|_CERT", name)}}
    commands = commands_of_the_guide()
    print("| route | all, s | CPU s | apt, s | CPU s | the rest, s | CPU s |\n|---|---|---|---|---|---|---|")
    for name in sys.argv[3:] or ["tarball", "deb", "wheel", "npm", "source"]:
        measure(name, commands, dist, base, environment)


if __name__ == "__main__":
    main()
