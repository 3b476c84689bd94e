"""sqlite-lm in every connection that Datasette opens."""
from datasette import hookimpl

import sqlite_lm


@hookimpl
def prepare_connection(conn):
    sqlite_lm.load(conn)
