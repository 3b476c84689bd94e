"""An extension with CUDA inside, which sqlite_lm loads where this package is installed."""
import os


def loadable_path() -> str:
    """The extension's path as SQLite's load_extension() takes it: without ".so"."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "lm0")
