"""What exceeds a limit of the connection is an error, and a transaction around it goes on."""
import sqlite3
import unittest

import harness

SQLITE_LIMIT_LENGTH = 0


class LimitsTest(unittest.TestCase):
    def setUp(self):
        self.connection = harness.connect()
        self.connection.execute("CREATE TABLE t(x)")
        self.connection.execute("BEGIN")
        self.connection.execute("INSERT INTO t VALUES (1)")
        self.connection.setlimit(SQLITE_LIMIT_LENGTH, 1000)

    def tearDown(self):
        self.assertTrue(self.connection.in_transaction)
        self.connection.execute("COMMIT")
        self.assertEqual(harness.value(self.connection, "SELECT count(*) FROM t"), 1)
        self.connection.close()

    def assert_too_big(self, sql, *parameters):
        with self.assertRaisesRegex((sqlite3.DataError, sqlite3.OperationalError), "string or blob too big"):
            self.connection.execute(sql, parameters).fetchall()

    def test_a_result_that_is_too_long(self):
        self.assert_too_big("SELECT lm_tokenize(?)", "a " * 490)
        self.assert_too_big("SELECT lm_render(?, ?)", "x" * 900, "y" * 900)
        self.assert_too_big("INSERT INTO t SELECT lm_logprobs(?)", "a b " * 100)
        answer = "SELECT generate('go', NULL, '{\"max_tokens\":1500,\"temperature\":4}')"
        self.connection.setlimit(SQLITE_LIMIT_LENGTH, 100)
        self.assert_too_big(answer)

    def test_a_row_of_lm_each_that_is_too_long(self):
        self.connection.setlimit(SQLITE_LIMIT_LENGTH, 150)
        self.assert_too_big("SELECT value FROM lm_each('[\"go\"]', NULL, '{\"max_tokens\":1500,\"temperature\":4}')")

    def test_what_fits_is_given(self):
        self.assertEqual(harness.value(self.connection, "SELECT lm_detokenize(lm_tokenize('abc'))"), "abc")


if __name__ == "__main__":
    unittest.main()
