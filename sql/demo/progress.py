#!/usr/bin/python3
"""A progress bar for a job: runs it, or goes on with it, and shows how far it is.

    sql/demo/progress.py notes.db shorten
    sql/demo/progress.py notes.db shorten --options '{"max_errors":100}' --extension ./lm0

Needs nothing but Python's standard library. Ctrl-C ends the run after what is answered has been committed; the next one
goes on from there.
"""
import argparse
import shutil
import sqlite3
import sys

BLOCKS = " ▏▎▍▌▋▊▉█"


def bar(fraction, width):
    eighths = round(fraction * width * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (BLOCKS[part] if part else "")).ljust(width)


def clock(seconds):
    if seconds is None:
        return "--:--"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"


def line(job, row, columns):
    total, done, failed, rows_per_second, tokens_per_second, eta, seconds = row
    fraction = (done + failed) / total if total else 1
    left = f"{job} {fraction:4.0%} "
    right = f" {done + failed}/{total}"
    if failed:
        right += f", {failed} failed"
    right += f"  {rows_per_second or 0:.1f} rows/s  {tokens_per_second or 0:.0f} tokens/s  "
    right += f"{clock(eta)} left" if eta else f"in {clock(seconds)}"
    return left + bar(fraction, max(8, min(40, columns - len(left) - len(right) - 1))) + right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database")
    parser.add_argument("job")
    parser.add_argument("--options", help="of lm_run(), as JSON")
    parser.add_argument("--extension", default="build/release/extension/lm0")
    args = parser.parse_args()
    db = sqlite3.connect(f"file:{args.database}?mode=rw", uri=True, isolation_level=None)
    if not hasattr(db, "enable_load_extension"):
        print(f"{sys.executable} was built without load_extension: use /usr/bin/python3", file=sys.stderr)
        return 1
    db.enable_load_extension(True)
    db.load_extension(args.extension)
    terminal = sys.stdout.isatty()
    sql = "SELECT total, done, failed, rows_per_second, tokens_per_second, eta_seconds, seconds FROM lm_run(?, ?)"
    row = None
    try:
        for row in db.execute(sql, (args.job, args.options)):
            text = line(args.job, row, shutil.get_terminal_size().columns)
            print(f"\r\x1b[2K{text}" if terminal else text, end="" if terminal else "\n", flush=True)
    except sqlite3.Error as error:
        print(f"\n{error}" if terminal and row else error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; run it again to go on", file=sys.stderr)
        return 130
    finally:
        db.close()
    if terminal:
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
