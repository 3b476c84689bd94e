"""Local language models inside SQLite.

    import sqlite3, sqlite_lm

    connection = sqlite3.connect("notes.db")
    sqlite_lm.load(connection)
    print(connection.execute("SELECT generate('...')").fetchone()[0])
"""
import os
import sqlite3
import sys

__all__ = ["load", "loadable_path", "model_path"]
__version__ = "@VERSION@"

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def loadable_path() -> str:
    """The extension's path as SQLite's load_extension() takes it: without ".so"; of sqlite-lm-cuda, if it is installed."""
    try:
        import sqlite_lm_cuda
    except ImportError:
        return os.path.join(_FOLDER, "lm0")
    return sqlite_lm_cuda.loadable_path()


def model_path() -> str:
    """The small model that ships with it and is used where no other is named."""
    return os.path.join(_FOLDER, "debian-notes.gguf")


def load(connection: sqlite3.Connection) -> None:
    """Loads the extension into the connection, of sqlite3 or of a module with the same methods (pysqlite3, apsw).

    Raises RuntimeError, with what to do, where that Python cannot load extensions, and sqlite3.OperationalError with
    SQLite's words where SQLite refuses to.
    """
    # apsw's methods are called otherwise.
    enable = getattr(connection, "enable_load_extension", None) or getattr(connection, "enableloadextension", None)
    load_extension = getattr(connection, "load_extension", None) or getattr(connection, "loadextension", None)
    if enable is None or load_extension is None:
        raise RuntimeError(
            f"this Python ({sys.executable}) was built without loadable extensions for SQLite, as the one of macOS and "
            "some of pyenv's are. Use another one (Debian's, Homebrew's, python.org's, conda's), build pyenv's with "
            "PYTHON_CONFIGURE_OPTS=--enable-loadable-sqlite-extensions, or use the package pysqlite3-binary")
    enable(True)
    try:
        load_extension(loadable_path())
    finally:
        enable(False)
