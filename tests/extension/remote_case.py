"""What the tests of models on the network share."""
import json
import unittest

import harness
from chat_server import ChatServer

CANARY = "zqx7413"  # what the first question of each kind of constraint makes a server say


def constrained(answer):
    """Answers as a server does that keeps to constraints: the canary's word where it is asked for."""
    return lambda body: ('{"word": "%s"}' % CANARY if "schema" in str(body.get("response_format")) else CANARY) if CANARY in json.dumps(body) else answer(body)


class RemoteCase(unittest.TestCase):
    def server(self, **how):
        server = ChatServer(**how)
        server.__enter__()
        self.addCleanup(server.__exit__)
        return server

    def connect(self, path, **options):
        connection = harness.connect()
        self.addCleanup(connection.close)
        self.register(connection, path, **options)
        return connection

    def register(self, connection, path, **options):
        connection.execute("INSERT OR REPLACE INTO temp.lm_models(name, path, options) VALUES ('default', ?, ?)", (path, json.dumps(options)))

    def fails(self, connection, sql, pattern, *parameters):
        with self.assertRaisesRegex(Exception, pattern):
            connection.execute(sql, parameters).fetchall()
