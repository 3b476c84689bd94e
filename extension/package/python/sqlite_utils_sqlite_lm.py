"""sqlite-lm in every connection that sqlite-utils (3.35 or newer) opens."""
from sqlite_utils import hookimpl

import sqlite_lm


@hookimpl
def prepare_connection(conn):
    sqlite_lm.load(conn)
