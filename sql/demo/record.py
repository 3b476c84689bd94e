#!/usr/bin/python3
"""Runs commands in a terminal and draws what they show, when they show it, as an SVG that plays for ever.

    record.py --out recording.svg --seconds 60 'sqlite-lm doctor' "sqlite3 notes.db 'SELECT 1'"
    record.py --out output.svg --still 'sqlite3 notes.db .tables'        # the end of it, as a picture

Each command begins with an empty screen, and what is left of --seconds is shared by the commands, to be read in. Columns (--columns)
and rows (--rows) are the terminal's; a command that shows more rows scrolls. Of colours and cursors only \\r and "erase to the end of the
line" are known, which is what sqlite-lm's progress bar needs. In a command that ends in "^C1.5", that is not typed: Ctrl-C is pressed 1.5
seconds after it has first shown something. pictures.sh has the commands of the README's pictures.
"""
import argparse
import codecs
import fcntl
import html
import os
import pty
import re
import select
import struct
import sys
import termios
import time

WIDTH, HEIGHT, MARGIN = 8.0, 17, 10  # of a character, of a row, around all of it
FRAME = 0.2  # seconds: what changes within them is one change


def broken(line, columns):
    """The line as it stands on a screen, where it is longer than a row."""
    return [line[i:i + columns] for i in range(0, max(len(line), 1), columns)]


def screens_of(command, rows, columns, stop_after=None):
    """What stands on the screen while the command runs: (seconds, lines) for each change. Fails as the command does, unless it is stopped."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvp("sh", ["sh", "-c", command])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    began, screens, lines, column = time.monotonic(), [], [""], 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    stop_at, is_stopped = None, False
    while True:
        if stop_at is not None and not select.select([terminal], [], [], max(stop_at - time.monotonic(), 0))[0]:
            os.write(terminal, b"\x03")
            stop_at, is_stopped = None, True
        try:
            data = os.read(terminal, 65536)
        except OSError:  # Linux's way to say that nobody writes any more
            data = b""
        for part in re.findall(r"\x1b\[[\d;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", decoder.decode(data)):
            if part == "\n":
                lines.append("")
                column = 0
            elif part == "\r":
                column = 0
            elif part.endswith("K") and part.startswith("\x1b"):
                lines[-1] = lines[-1][:column]
            elif not part.startswith("\x1b"):
                lines[-1] = lines[-1][:column] + part + lines[-1][column + len(part):]
                column += len(part)
        at = time.monotonic() - began
        if stop_after is not None:
            stop_at, stop_after = began + at + stop_after, None
        if screens and at - screens[-1][0] < FRAME:
            at = screens.pop()[0]
        screens.append((at, [row for line in lines for row in broken(line, columns)][-rows:]))
        if not data:
            break
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0 and not is_stopped:
        sys.exit(f"record.py: {command}: status {status}\n" + "\n".join(lines))
    os.close(terminal)
    return screens


class Drawing:
    def __init__(self, rows, columns):
        self.size = (2 * MARGIN + WIDTH * columns, 2 * MARGIN + HEIGHT * rows)
        self.texts = []

    def add(self, row, line, is_typed, begin=None, end=None):
        """A line of the screen, from `begin` to `end`; always, where there are none."""
        if not line.strip():
            return
        typed = ' class="t"' if is_typed else ""
        # Fonts disagree about the width of what is not ASCII.
        width = "" if line.isascii() else f' textLength="{WIDTH * len(line):.0f}"'
        shown = "" if begin is None else f'<set attributeName="visibility" to="visible" begin="c.begin+{begin:.1f}s" dur="{end - begin:.1f}s"/>'
        self.texts.append(f'<text x="{MARGIN}" y="{MARGIN + HEIGHT * (row + 1) - 5}"{typed}{width}>{html.escape(line, quote=False)}{shown}</text>')

    def write(self, path, seconds=None):
        width, height = self.size
        hidden = "" if seconds is None else "text{visibility:hidden}"
        clock = "" if seconds is None else f'<animate id="c" attributeName="rx" from="6" to="6" begin="0s;c.end" dur="{seconds:.1f}s"/>'
        with open(path, "w", encoding="utf-8") as out:
            out.write(f'<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">\n'
                      f"<style>text{{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d6dbe0;white-space:pre}}"
                      f".t{{fill:#8fd18f}}{hidden}</style>\n"
                      f'<rect width="100%" height="100%" rx="6" fill="#1c2128">{clock}</rect>\n' + "\n".join(self.texts) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--still", action="store_true")
    parser.add_argument("commands", nargs="+")
    args = parser.parse_args()

    scenes = []
    for command in args.commands:
        command, stop_after = re.fullmatch(r"(.*?)(?: *\^C([\d.]+))?", command, re.DOTALL).groups()
        typed = broken("$ " + command, args.columns)
        shown = screens_of(command, args.rows - len(typed), args.columns, float(stop_after) if stop_after else None)
        screens = [(0.0, typed)] + [(1 + at, typed + lines) for at, lines in shown]
        scenes.append(screens)
    if args.still:
        drawing = Drawing(max(len(screens[-1][1]) for screens in scenes), args.columns)
        for row, line in enumerate(scenes[-1][-1][1]):
            drawing.add(row, line, row < len(scenes[-1][0][1]))
        drawing.write(args.out)
        return
    spare = args.seconds - sum(screens[-1][0] for screens in scenes)
    if spare < len(scenes):
        sys.exit(f"record.py: the commands take {args.seconds - spare:.0f} of {args.seconds:.0f} seconds")
    drawing, now = Drawing(args.rows, args.columns), 0.0
    for screens in scenes:
        end = now + screens[-1][0] + spare / len(scenes)
        for row in range(args.rows):
            begin, line = now, ""
            for at, lines in screens + [(end - now, [])]:
                new = lines[row] if row < len(lines) else ""
                if new != line or at == end - now:
                    if line:
                        drawing.add(row, line, row < len(screens[0][1]), begin, now + at)
                    begin, line = now + at, new
        now = end
    drawing.write(args.out, args.seconds)


if __name__ == "__main__":
    main()
