"""What the Python tests of lm0.so share: the library under test and a small model, from the environment.

LM0 is the library, LM_MODEL the model that generate() uses by default; CTest sets both. Where
LM_SQLITE_LIBRARY_DIR is set, the host is over the SQLite of that folder.
"""
import os
import pathlib
import sqlite3
import subprocess
import sys
import unittest

LM0 = os.environ["LM0"]
MODEL = os.environ["LM_MODEL"]
MODELS = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "models"


def connect(name=":memory:", **options):
    connection = sqlite3.connect(name, isolation_level=None, check_same_thread=False, **options)
    if not hasattr(connection, "enable_load_extension"):
        sys.exit(f"{sys.executable}: its sqlite3 module was built without load_extension (Debian's python3 has it)")
    connection.enable_load_extension(True)
    connection.load_extension(LM0)
    return connection


def value(connection, sql, *parameters):
    """The first value of the first row."""
    return connection.execute(sql, parameters).fetchone()[0]


def needs_shell(test):
    """For tests of the sqlite3 shell, which refuses every library but the one that it was built with."""
    try:
        ran = subprocess.run(["sqlite3", ":memory:", "SELECT 1"], capture_output=True, text=True)
        missing = ran.stderr if ran.returncode else ""
    except FileNotFoundError:
        missing = "there is no sqlite3 shell"
    return unittest.skipIf(missing, missing)(test)
